package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

func propose(t *testing.T, s *Store, c flight.Command) flight.Reply {
	t.Helper()
	reply, err := s.Propose(context.Background(), c)
	require.NoError(t, err)
	return reply
}

// everything creates flights in many states: finished, failed, in doubt, freed, retried, cancelled, expired.
func everything(t *testing.T, s *Store) {
	t.Helper()
	for n := range 30 {
		key := testKey(n)
		open := openOf(s, key, n)
		open.Submission.Policy.Retention = time.Minute
		if n%5 == 4 {
			open.Submission.Input = flight.NewBlob("text/plain", []byte{}, flight.MaxInput)
		}
		token := propose(t, s, open).Token
		report := reportOf(key, token, fmt.Sprint(n))
		switch n % 6 {
		case 1:
			report.Outcome = flight.OutcomeRefused
			report.Body = flight.NewBlob("text/plain", []byte{}, flight.MaxReceiptBody)
		case 2:
			report.Outcome = flight.OutcomeUnknown
		case 3:
			report.Outcome = flight.OutcomeNotDone
		}
		_, err := s.Report(context.Background(), report)
		require.NoError(t, err)
		late := *report
		late.Token.Number += 7
		propose(t, s, &late)
		switch n % 6 {
		case 0:
			propose(t, s, &flight.FreeKey{Key: key, Generation: 1, Actor: "ann"})
		case 3:
			propose(t, s, &flight.Cancel{Key: key, Generation: 1, Actor: "ann"})
			propose(t, s, &flight.Retry{Key: key, Generation: 1, Actor: "ann"})
		}
		if n == 15 {
			time.Sleep(2 * time.Minute)
			_, err := s.Expire(context.Background(), 100)
			require.NoError(t, err)
			changeDocuments(t, s)
		}
	}
}

// applyBlocker blocks the fsm's goroutine, so that committed entries are not applied.
type applyBlocker struct{ held atomic.Pointer[chan struct{}] }

func (b *applyBlocker) events() Events {
	return Events{Applied: func(int, int, time.Duration) {
		if held := b.held.Load(); held != nil {
			<-*held
		}
	}}
}

// block stops the fsm after one more entry, until thaw is called.
func (b *applyBlocker) block(t *testing.T, s *Store) (thaw func()) {
	synctest.Wait() // earlier replies are delivered first, else the fsm would stop too early
	held := make(chan struct{})
	b.held.Store(&held)
	propose(t, s, &flight.Tick{})
	return func() { b.held.Store(nil); close(held) }
}

func TestHazard10_CopiesOfACommandAnswerAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		key := testKey(1)
		open := openOf(s, key, 1)
		first := propose(t, s, open)
		require.Equal(t, flight.DecisionProceed, first.Decision)
		second := propose(t, s, open)
		require.Equal(t, flight.DecisionProceed, second.Decision)
		require.Equal(t, first.Token, second.Token)
		require.False(t, second.Changed)
		report := reportOf(key, first.Token, "x")
		firstReport := propose(t, s, report)
		secondReport := propose(t, s, report)
		require.Equal(t, firstReport.Decision, secondReport.Decision)
		require.Equal(t, firstReport.Flight.Receipt, secondReport.Flight.Receipt)
		require.Equal(t, uint32(1), secondReport.Flight.AttemptCount)

		// Both copies are in one entry: the second sees the effect of the first.
		var replies [2]flight.Reply
		var both sync.WaitGroup
		other := openOf(s, testKey(2), 2)
		for i := range replies {
			both.Go(func() { replies[i] = propose(t, s, other) })
		}
		both.Wait()
		require.Equal(t, replies[0].Token, replies[1].Token)
		require.Equal(t, flight.DecisionProceed, replies[0].Decision)
		require.Equal(t, flight.DecisionProceed, replies[1].Decision)
	})
}

func TestHazard08_OpenOfUnknownOutcomeIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, z := memConfig(vfs.NewMem()), new(applyBlocker)
		cfg.Events = z.events()
		s := openStore(t, cfg)
		open := openOf(s, testKey(1), 1)
		thaw := z.block(t, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Propose(ctx, open)
		require.True(t, errors.Is(err, effect.ErrAmbiguous), err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		thaw()
		reply := propose(t, s, open)
		require.Equal(t, flight.DecisionProceed, reply.Decision)
		require.Equal(t, uint32(1), reply.Token.Number, "it was one attempt all along")

		// An Open that its caller has given up never opens an attempt.
		lost := openOf(s, testKey(2), 2)
		propose(t, s, &flight.Abandon{Key: lost.Key, Nonce: lost.Nonce, NotAfter: lost.NotAfter, StoreEpoch: lost.StoreEpoch})
		require.Equal(t, flight.DecisionFenced, propose(t, s, lost).Decision)
		late := openOf(s, testKey(3), 3)
		time.Sleep(time.Minute)
		require.Equal(t, flight.DecisionOpenExpired, propose(t, s, late).Decision, "its NotAfter has passed on the ledger's clock")
	})
}

func TestPropose_CancelledWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, z := memConfig(vfs.NewMem()), new(applyBlocker)
		cfg.Events = z.events()
		s := openStore(t, cfg)
		thaw := z.block(t, s)
		ctx, cancel := context.WithCancel(context.Background())
		var stuck sync.WaitGroup
		for range maxInFlight { // raft has as many batches as allowed
			stuck.Go(func() { _, _ = s.Propose(context.Background(), &flight.Tick{}) })
			synctest.Wait()
		}
		go func() { time.Sleep(time.Second); cancel() }()
		_, err := s.Propose(ctx, openOf(s, testKey(1), 1))
		require.ErrorIs(t, err, ErrUnavailable, "definite: the command never left this process")
		require.False(t, errors.Is(err, effect.ErrAmbiguous))
		thaw()
		stuck.Wait()
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
	})
}

func TestBatchesStayWithinTheEntryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		var callers sync.WaitGroup
		for n := range 40 {
			callers.Go(func() {
				open := openOf(s, testKey(n), n)
				open.Submission.Input = flight.NewBlob("text/plain", []byte(strings.Repeat("x", 100_000)), flight.MaxInput)
				require.Equal(t, flight.DecisionProceed, propose(t, s, open).Decision)
			})
		}
		callers.Wait()
		last, _ := s.log.LastIndex()
		require.Greater(t, last, uint64(9), "4 MB are 8 entries at least")
		require.NoError(t, s.log.Scan(1, sizeAtMost(t, maxEntry)))
		big := openOf(s, testKey(99), 99)
		big.Submission.Input = flight.NewBlob("text/plain", make([]byte, 600_000), 600_000)
		_, err := s.Propose(context.Background(), big)
		require.ErrorIs(t, err, ErrTooLarge)
		_, err = s.Report(context.Background(), &flight.Report{Key: testKey(99), Body: big.Submission.Input})
		require.ErrorIs(t, err, ErrTooLarge)
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		id := testKey(1).FlightID()
		const waiting = 1000
		var woken sync.WaitGroup
		var states sync.Map
		for n := range waiting {
			woken.Go(func() {
				f, err := s.Wait(context.Background(), id, flight.Version{})
				require.NoError(t, err)
				require.Equal(t, flight.StateRunning, f.State)
				f, err = s.Wait(context.Background(), id, f.Version)
				require.NoError(t, err)
				states.Store(n, f.State)
			})
		}
		synctest.Wait()
		token := propose(t, s, openOf(s, testKey(1), 1)).Token
		synctest.Wait()
		openAndReport(t, s, 2) // a change of another flight wakes no waiter of this one
		propose(t, s, reportOf(testKey(1), token, "x"))
		woken.Wait()
		got := 0
		states.Range(func(_, state any) bool { got++; return state == flight.StateSucceeded })
		require.Equal(t, waiting, got)
		require.Zero(t, s.fsm.waiters.total.Load())
		for i := range s.fsm.waiters.shards {
			require.Empty(t, s.fsm.waiters.shards[i].lists)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errors.New("enough"))
		defer cancel()
		_, err := s.Wait(ctx, testKey(9).FlightID(), flight.Version{})
		require.ErrorContains(t, err, "enough")
	})
}

func TestBodiesAcrossGenerations(t *testing.T) {
	for _, written := range []bool{false, true} {
		for _, long := range []int{0, maxInlineBody} {
			t.Run(fmt.Sprintf("written %v, longer by %d", written, long), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testBodiesAcrossGenerations(t, written, strings.Repeat(".", long)) })
			})
		}
	}
}

// testBodiesAcrossGenerations flushes the state between the commands, or after them. Bodies are inline if tail is
// empty, else they have their own rows.
func testBodiesAcrossGenerations(t *testing.T, written bool, tail string) {
	s := openStore(t, memConfig(vfs.NewMem()))
	settle := func() {
		if written {
			s.fsm.flush()
		}
	}
	key := testKey(1)
	token := propose(t, s, openOf(s, key, 1)).Token
	settle()
	propose(t, s, reportOf(key, token, "first"+tail))
	settle()
	propose(t, s, &flight.FreeKey{Key: key, Generation: 1})
	settle()
	_, err := s.Body(key.FlightID(), 1, BodyInput)
	require.ErrorIs(t, err, ErrNoBody, "the input of a freed generation is deleted")
	open := openOf(s, key, 2)
	open.Submission.Input = flight.NewBlob("text/plain", []byte("input"+tail), flight.MaxInput)
	token = propose(t, s, open).Token
	settle()
	report := reportOf(key, token, "second"+tail)
	report.Generation = 2
	propose(t, s, report)
	settle()
	for generation, want := range map[uint32]string{1: "first", 2: "second"} {
		body, err := s.Body(key.FlightID(), generation, BodyReceipt)
		require.NoError(t, err)
		require.Equal(t, want+tail, string(body))
	}
	input, err := s.Body(key.FlightID(), 2, BodyInput)
	require.NoError(t, err)
	require.Equal(t, "input"+tail, string(input))
	wantRows := 0
	if tail != "" {
		wantRows = 3
	}
	require.Equal(t, wantRows, countRows(t, s, bodyRow))

	gone := testKey(5)
	propose(t, s, &flight.Submit{Key: gone, Submission: open.Submission})
	propose(t, s, &flight.Cancel{Key: gone, Generation: 1})
	settle()
	propose(t, s, &flight.Retry{Key: gone, Generation: 1})
	settle()
	input, err = s.Body(gone.FlightID(), 2, BodyInput)
	require.NoError(t, err)
	require.Equal(t, "input"+tail, string(input), "a retried flight reuses the first input")
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		for n := range 12 {
			key := testKey(n)
			open := openOf(s, key, n)
			open.Submission.Policy.Retention = time.Duration(n+1) * time.Minute
			token := propose(t, s, open).Token
			propose(t, s, reportOf(key, token, fmt.Sprint(n)))
		}
		time.Sleep(5*time.Minute + time.Second)
		for _, want := range []int{3, 2, 0} {
			n, err := s.Expire(context.Background(), 3)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		requireConsistent(t, s)
		id := testKey(2).FlightID()
		f, err := s.Flight(id)
		require.NoError(t, err)
		require.Equal(t, flight.StateExpired, f.State)
		rows := 0
		for key := range dump(t, s) {
			if strings.HasPrefix(key, string(append([]byte{flightRows}, id[:]...))) {
				rows++
			}
		}
		require.Equal(t, 1, rows, "a tombstone has only its record")
		record, err := flight.EncodeRecord(f)
		require.NoError(t, err)
		require.Less(t, len(record), 160)
		page, err := s.List(flight.Query{})
		require.NoError(t, err)
		require.Len(t, page.Flights, 7)
	})
}

func TestHazard34_DuplicateAfterTheRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		first := openOf(s, testKey(1), 1)
		first.Submission.Policy.Retention = time.Minute
		token := propose(t, s, first).Token
		propose(t, s, reportOf(testKey(1), token, "x"))
		time.Sleep(2 * time.Minute)
		// The duplicate and the end of the retention race. In either order the effect is not repeated.
		again := openOf(s, testKey(1), 1)
		again.Nonce = nonce(77)
		var reply flight.Reply
		var race sync.WaitGroup
		race.Go(func() { reply = propose(t, s, again) })
		race.Go(func() { _, _ = s.Expire(context.Background(), 10) })
		race.Wait()
		require.Contains(t, []flight.Decision{flight.DecisionReplay, flight.DecisionExpired}, reply.Decision)
		again.Nonce = nonce(78)
		reply = propose(t, s, again)
		require.Equal(t, flight.DecisionExpired, reply.Decision)
		require.Equal(t, first.Submission.Fingerprint, reply.Flight.Fingerprint)
		require.Equal(t, flight.OutcomeSucceeded, reply.Flight.Receipt.Outcome)
		other := openOf(s, testKey(1), 2)
		require.Equal(t, flight.DecisionConflict, propose(t, s, other).Decision)
	})
}

func sizeAtMost(t *testing.T, limit int) func(entry *raft.Log) error {
	return func(e *raft.Log) error {
		require.LessOrEqual(t, len(e.Data), limit)
		return nil
	}
}
