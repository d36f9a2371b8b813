package clusterstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// openUnder opens key n under a session.
func openUnder(t *testing.T, s *Store, n int, id flight.SessionID, policy flight.Policy) flight.Reply {
	t.Helper()
	open := openOf(s, testKey(n), n)
	open.Session, open.Submission.Policy = sessionOf(s, id), policy
	return propose(t, s, open)
}

// endedOf returns the proof that a session has ended.
func endedOf(s *Store, id flight.SessionID) *flight.EndSession {
	session := sessionOf(s, id)
	return &flight.EndSession{Session: session, ReadRevision: session.Revision, Epoch: session.Epoch, StoreEpoch: s.Header().StoreEpoch}
}

// manySessions creates flights held by sessions in every way, some that no session holds, and ended sessions.
func manySessions(t *testing.T, s *Store) {
	t.Helper()
	for n := range 40 {
		opened := openUnder(t, s, n, flight.SessionID(fmt.Sprint("session-", n%4)), flight.Policy{Recovery: flight.RecoveryVerify})
		require.Equal(t, flight.DecisionProceed, opened.Decision)
		report := reportOf(testKey(n), opened.Token, fmt.Sprint(n))
		switch n % 10 {
		case 1:
			propose(t, s, report)
		case 2, 3:
			report.Outcome = flight.OutcomeUnknown
			propose(t, s, report)
		case 4:
			wake := flight.Wake{At: s.Now().Add(time.Hour), Callback: true}
			require.Equal(t, flight.DecisionAccepted, propose(t, s, &flight.Suspend{Key: testKey(n), Generation: 1, Token: opened.Token, Wake: wake}).Decision)
		}
	}
	for n := range 10 { // jobs: some in a lane, some due later
		submit := &flight.Submit{Key: testKey(100 + n), Queue: &flight.Queue{Priority: int16(n % 3), Lane: []string{"", "a"}[n%2]}}
		if n%4 == 0 {
			submit.Queue.RunAt = s.Now().Add(time.Duration(n) * time.Hour)
		}
		require.Equal(t, flight.DecisionAccepted, propose(t, s, submit).Decision)
	}
	require.Equal(t, flight.DecisionProceed, openUnder(t, s, 101, "session-1", flight.Policy{}).Decision)
	require.Equal(t, flight.DecisionBusy, openUnder(t, s, 103, "session-1", flight.Policy{}).Decision, "101 stands before it in the lane")
	time.Sleep(time.Minute) // a verification counts from now on
	for n := 3; n < 40; n += 10 {
		look := openOf(s, testKey(n), n)
		look.Nonce, look.Session = nonce(1000+n), sessionOf(s, "session-looks")
		require.Equal(t, flight.DecisionVerify, propose(t, s, look).Decision)
	}
	require.Equal(t, flight.DecisionAccepted, propose(t, s, endedOf(s, "session-3")).Decision)
	propose(t, s, &flight.WithdrawSession{Key: testKey(1), Session: "session-unused", StoreEpoch: s.Header().StoreEpoch})
}

// After a start the fsm holds the same sessions as before, in three cases: the state was flushed; the process crashed
// before the flush and the log is applied again; the state was lost and a snapshot is restored.
func TestSessionsAfterAStart(t *testing.T) {
	lose := func(t *testing.T, fs *vfs.MemFS) { require.NoError(t, fs.RemoveAll("ledger/"+stateName(1))) }
	for name, way := range map[string]struct {
		before func(*testing.T, *Store)
		then   func(*testing.T, *vfs.MemFS)
	}{
		"written":              {before: func(_ *testing.T, s *Store) { s.fsm.flush() }},
		"not written":          {},
		"all of it is lost":    {then: lose},
		"a snapshot is there":  {before: func(t *testing.T, s *Store) { require.NoError(t, s.takeSnapshot()) }, then: lose},
		"an older snapshot is": {before: func(t *testing.T, s *Store) { require.NoError(t, s.takeSnapshot()); openAndReport(t, s, 500) }, then: lose},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewCrashableMem()
				cfg := memConfig(fs)
				cfg.Log.Trailing = 1
				s := openStore(t, cfg)
				manySessions(t, s)
				if way.before != nil {
					way.before(t, s)
				}
				held, ended := heldByAll(s.fsm.sessions), s.fsm.sessions.EndedSessions()
				require.Len(t, held, 4, "three with attempts, and one that verifies")
				require.Len(t, ended, 2)
				crashed := fs.CrashClone(vfs.CrashCloneCfg{})
				require.NoError(t, s.Close(context.Background()))
				if way.then != nil {
					way.then(t, crashed)
				}
				cfg.FS = crashed
				reopened := openStore(t, cfg)
				require.Equal(t, held, heldByAll(reopened.fsm.sessions))
				require.ElementsMatch(t, ended, reopened.fsm.sessions.EndedSessions())
				requireConsistent(t, reopened)
				for _, id := range []flight.SessionID{"session-3", "session-unused"} {
					require.Equal(t, flight.DecisionSessionEnded, openUnder(t, reopened, 900, id, flight.Policy{}).Decision)
				}
				require.Equal(t, flight.DecisionProceed, openUnder(t, reopened, 901, "session-0", flight.Policy{}).Decision)

				time.Sleep(flight.MaxOpenLife + time.Second)
				propose(t, reopened, &flight.Tick{})
				require.Empty(t, reopened.fsm.sessions.EndedSessions())
				for key := range dump(t, reopened) {
					require.NotEqual(t, byte(endedRow), key[0], "a forgotten session has no row")
				}
				require.Equal(t, flight.DecisionProceed, openUnder(t, reopened, 900, "session-3", flight.Policy{}).Decision)
			})
		})
	}
}

// An EndSession ends at most MaxEndSessionFlights attempts, and its reply says whether some are left. Each changed
// flight gets an event in its history and in the feed, and its waiters are woken.
func TestEndedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := openStore(t, memConfig(fs))
		const flights = 2*flight.MaxEndSessionFlights + 90
		for n := range flights {
			policy := flight.Policy{}
			if n%2 == 1 {
				policy.Recovery = flight.RecoveryResend
			}
			openUnder(t, s, n, "session-many", policy)
		}
		openUnder(t, s, flights, "session-other", flight.Policy{})
		var waiting sync.WaitGroup
		for n := range flights {
			waiting.Go(func() {
				f, err := s.Wait(context.Background(), testKey(n).FlightID(), mustFlight(t, s, n).Version)
				require.NoError(t, err)
				require.True(t, f.Newest().Lost)
			})
		}
		synctest.Wait()
		end, err := s.feed.End()
		require.NoError(t, err)

		at := make(map[flight.Version]int)
		for batch, want := range []int{flight.MaxEndSessionFlights, flight.MaxEndSessionFlights, 90, 0} {
			reply := propose(t, s, endedOf(s, "session-many"))
			require.Equal(t, flight.DecisionAccepted, reply.Decision)
			require.Len(t, reply.PerFlight, want)
			require.Equal(t, want > 0, reply.Changed)
			require.Equal(t, batch < 2, reply.More)
			for _, ended := range reply.PerFlight {
				at[ended.Flight.Version]++
			}
			_, left := s.HeldBy("session-many", flight.ID{}, 1)
			require.Equal(t, max(0, flights-(batch+1)*flight.MaxEndSessionFlights), left)
		}
		waiting.Wait()
		require.Len(t, at, 3, "the flights of one command have its version")
		for n := range flights {
			want := []flight.State{flight.StateInDoubt, flight.StateReady}[n%2]
			require.Equal(t, want, mustFlight(t, s, n).State, "each by its own policy")
		}
		require.Equal(t, 1, s.HeldCount())
		require.Equal(t, []flight.Session{sessionOf(s, "session-other")}, s.Holders())
		requireConsistent(t, s)

		events := readFeed(t, s, end, 1000)
		requireEndedEvents(t, s, events, flights)
		for _, limit := range []int{1, 100} {
			require.Equal(t, events, readFeed(t, s, end, limit))
		}
		last, err := s.feed.Last(10, func(e *flight.FeedEvent) bool { return e.Kind == flight.EventLost }, nil)
		require.NoError(t, err)
		require.Len(t, last.Events, 90, "the events of one command are not split")
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))
		require.Equal(t, events, readFeed(t, openStore(t, memConfig(fs)), end, 1000), "and after the log was applied again")
	})
}

// requireEndedEvents checks that the feed has, for each flight, the events of its history after its Open, once and in
// order.
func requireEndedEvents(t *testing.T, s *Store, events []flight.FeedEvent, flights int) {
	t.Helper()
	byKey := make(map[flight.Key][]flight.HistoryEvent)
	for i, e := range events {
		require.False(t, i > 0 && events[i-1].Version.After(e.Version), "out of order")
		byKey[e.Key] = append(byKey[e.Key], e.HistoryEvent)
	}
	require.Len(t, byKey, flights)
	for n := range flights {
		history, err := s.History(testKey(n).FlightID())
		require.NoError(t, err)
		require.Equal(t, history[2:], byKey[testKey(n)])
		require.Equal(t, flight.EventLost, history[2].Kind)
	}
}

// An invalid proof changes and records nothing, neither now nor after a restart.
func TestEndedThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := openStore(t, memConfig(fs))
		openUnder(t, s, 1, "session-a", flight.Policy{})
		stale, foreign, restored := endedOf(s, "session-a"), endedOf(s, "session-a"), endedOf(s, "session-a")
		stale.ReadRevision--
		foreign.Epoch++
		restored.StoreEpoch++
		want := dump(t, s)
		for _, c := range []*flight.EndSession{stale, foreign, restored} {
			reply := propose(t, s, c)
			require.Equal(t, flight.DecisionFenced, reply.Decision)
			require.False(t, reply.Changed)
		}
		got := dump(t, s)
		for _, rows := range []map[string]string{want, got} {
			delete(rows, string(kindKey(metaRow)))
			delete(rows, string(kindKey(headerRow)))
		}
		require.Equal(t, want, got)
		require.NoError(t, s.Close(context.Background()))
		reopened := openStore(t, memConfig(fs))
		require.Equal(t, flight.DecisionProceed, openUnder(t, reopened, 2, "session-a", flight.Policy{}).Decision)
	})
}

// A repeated proof extends the time for which the end is recorded.
func TestEndedIsRememberedFromItsLastRepeatOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := openStore(t, memConfig(fs))
		propose(t, s, endedOf(s, "session-a"))
		time.Sleep(flight.MaxOpenLife - time.Second)
		propose(t, s, endedOf(s, "session-a"))
		time.Sleep(flight.MaxOpenLife - time.Second)
		require.NoError(t, s.Close(context.Background()))
		s = openStore(t, memConfig(fs))
		require.Equal(t, flight.DecisionSessionEnded, openUnder(t, s, 1, "session-a", flight.Policy{}).Decision)
		time.Sleep(2 * time.Second)
		require.Equal(t, flight.DecisionProceed, openUnder(t, s, 1, "session-a", flight.Policy{}).Decision)
	})
}

func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		withdraw := func(n int, id flight.SessionID) flight.Decision {
			return propose(t, s, &flight.WithdrawSession{Key: testKey(n), Session: id, StoreEpoch: s.Header().StoreEpoch}).Decision
		}
		token := openUnder(t, s, 1, "session-a", flight.Policy{}).Token
		require.Equal(t, flight.DecisionBusy, withdraw(1, "session-a"), "its attempt is open")
		require.Equal(t, flight.DecisionProceed, openUnder(t, s, 2, "session-a", flight.Policy{}).Decision, "no end is recorded")
		propose(t, s, reportOf(testKey(1), token, "x"))
		require.Equal(t, flight.DecisionAccepted, withdraw(1, "session-a"))
		require.Equal(t, flight.DecisionSessionEnded, openUnder(t, s, 3, "session-a", flight.Policy{}).Decision)
		require.Equal(t, flight.DecisionAccepted, withdraw(4, "session-b"), "of a key that was never used")
		require.Equal(t, flight.DecisionSessionEnded, openUnder(t, s, 4, "session-b", flight.Policy{}).Decision)
		require.Equal(t, flight.DecisionFenced, propose(t, s, &flight.WithdrawSession{Key: testKey(5), Session: "session-c", StoreEpoch: 9}).Decision)
		require.Equal(t, flight.DecisionProceed, openUnder(t, s, 5, "session-c", flight.Policy{}).Decision)
		requireConsistent(t, s)
	})
}

// A nonce used by an Open that was rejected stays used, although the flight gets no new version.
func TestUsedNonceIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s := openStore(t, memConfig(fs))
		token := openUnder(t, s, 1, "session-a", flight.Policy{}).Token
		unknown := reportOf(testKey(1), token, "x")
		unknown.Outcome = flight.OutcomeUnknown
		propose(t, s, unknown)
		s.fsm.flush()
		before := mustFlight(t, s, 1)
		late := openOtherNonce(s, 1)
		late.NotAfter = s.Now().Add(flight.MaxOpenLife)
		late.Submission.Policy = before.Policy
		reply := propose(t, s, late)
		require.Equal(t, flight.DecisionInDoubt, reply.Decision)
		require.Equal(t, before.Version, reply.Flight.Version)
		s.fsm.flush() // this memBatch holds nothing else
		require.NoError(t, s.Close(context.Background()))
		s = openStore(t, memConfig(fs))
		require.Equal(t, flight.DecisionAccepted, propose(t, s, &flight.Resolve{Key: testKey(1), Generation: 1, Version: before.Version, Finding: flight.FindingNotHappened}).Decision)
		require.Equal(t, flight.DecisionFenced, propose(t, s, late).Decision, "its caller does not know of an attempt")
	})
}

// Readers see all changes of sessions by one entry, or none of them.
func TestSessionsAreReadWhileEntriesAreApplied(t *testing.T) {
	const sessions, rounds = 8, 25
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := openStore(t, memConfig(vfs.NewMem()))
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range sessions {
		writers.Go(func() {
			for n := range rounds {
				id := flight.SessionID(fmt.Sprint("session-", w, "-", n))
				for k := range 5 {
					openUnder(t, s, w*10_000+n*10+k, id, flight.Policy{})
				}
				reply, err := s.Propose(context.Background(), endedOf(s, id))
				require.NoError(t, err)
				require.Len(t, reply.PerFlight, 5)
			}
		})
	}
	for r := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(r)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, session := range s.Holders() {
					ids, all := s.HeldBy(session.ID, flight.ID{}, 1+rng.IntN(5))
					if len(ids) > all || all > s.HeldCount()+5*sessions {
						t.Errorf("%d of %d flights", len(ids), all)
						return
					}
					for _, id := range ids {
						if f, err := s.Flight(id); err != nil || f == nil {
							t.Errorf("a session holds a flight that cannot be read: %v, %v", f, err)
							return
						}
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	require.Zero(t, s.HeldCount())
	require.Empty(t, s.Holders())
	requireConsistent(t, s)
}

// openedAndWithdrawn abandons an Open of an unused key before it arrives.
func openedAndWithdrawn(t *testing.T, s *Store, n int) {
	t.Helper()
	reply := propose(t, s, &flight.Abandon{Key: testKey(n), Nonce: nonce(n), NotAfter: s.Now().Add(30 * time.Second), StoreEpoch: s.Header().StoreEpoch})
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	require.True(t, reply.Changed)
}

// A record that holds only used nonces is deleted when they have expired, and the key counts as never used.
func TestRecordOfUsedNoncesIsDeleted(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written %v", written), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRecordIsDeleted(t, written) })
		})
	}
}

func testRecordIsDeleted(t *testing.T, written bool) {
	fs := vfs.NewMem()
	s := openStore(t, memConfig(fs))
	write := func() {
		if written {
			s.fsm.flush()
			s.fsm.cache.clear()
		}
	}
	for n := range 3 {
		openedAndWithdrawn(t, s, n)
	}
	write()
	require.Equal(t, flight.DecisionFenced, propose(t, s, openOf(s, testKey(0), 0)).Decision)
	time.Sleep(20 * time.Second)
	propose(t, s, &flight.Abandon{Key: testKey(2), Nonce: nonce(77), NotAfter: s.Now().Add(30 * time.Second), StoreEpoch: s.Header().StoreEpoch})
	require.False(t, propose(t, s, &flight.Expire{Key: testKey(0), Generation: 1}).Changed, "too early")
	time.Sleep(20 * time.Second)
	write()
	expired := 0
	s.cfg.Events.Expired = func(n int) { expired += n }
	n, err := s.Expire(context.Background(), NoLimit)
	require.NoError(t, err)
	require.Zero(t, n+expired, "no retention has ended")
	write()
	for n := range 2 {
		f, err := s.Flight(testKey(n).FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
	}
	require.NotNil(t, mustFlight(t, s, 2), "one of its nonces is younger")
	require.Equal(t, map[flight.State]int64{flight.StateAbsent: 1}, s.Counts())
	require.Equal(t, flight.DecisionNotFound, propose(t, s, &flight.Expire{Key: testKey(0), Generation: 1}).Decision)
	requireConsistent(t, s)
	openAndReport(t, s, 0)
	require.NoError(t, s.takeSnapshot())
	require.NoError(t, s.Close(context.Background()))

	s = openStore(t, memConfig(fs))
	requireConsistent(t, s)
	f, err := s.Flight(testKey(1).FlightID())
	require.NoError(t, err)
	require.Nil(t, f)
	require.Equal(t, flight.StateSucceeded, mustFlight(t, s, 0).State)
	for key := range dump(t, s) {
		id := testKey(1).FlightID()
		require.False(t, strings.HasPrefix(key, string(append([]byte{flightRows}, id[:]...))), "nothing is left")
	}
}
