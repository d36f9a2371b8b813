package remote_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/remote"
)

func TestDigest(t *testing.T) {
	sum := sha256.Sum256([]byte("01000000000000000000000000000000 7\nff000000000000000000000000000000 12\n"))
	open := []remote.OpenAttempt{{Nonce: flight.Nonce{0xff}, Number: 12}, {Nonce: flight.Nonce{1}, Number: 7}}
	require.Equal(t, hex.EncodeToString(sum[:16]), remote.Digest(open))
	require.NotEqual(t, remote.Digest(nil), remote.Digest(open))
}

// A renewal lists the open attempts of the session if the caller's digest differs. Repeated and late renewals change
// nothing.
func TestRenew_ListsWithoutChanges(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		renewal := func(r remote.RenewRequest) remote.SessionAnswer {
			t.Helper()
			sleep(t, time.Second)
			a, err := fd.Remote().Renew(t.Context(), s, r)
			require.NoError(t, err)
			require.Equal(t, s, a.Session)
			require.Positive(t, a.Trust)
			require.Equal(t, 5*time.Second, a.RenewEvery)
			return a
		}
		require.Empty(t, renewal(remote.RenewRequest{OpenDigest: remote.Digest(nil)}).Open)
		answers := map[flight.ID]remote.OpenAnswer{}
		for i := range 3 {
			req := openOf(fmt.Sprint(i), `{}`, flight.Policy{}, byte(i+1))
			req.Session = s
			a := proceed(t, fd, req)
			answers[a.Flight.ID] = a
		}
		proceed(t, fd, openOf("somebody-elses", `{}`, flight.Policy{}, 9))
		require.Empty(t, renewal(remote.RenewRequest{}).Open, "a request without a digest gets no list")
		for range 4 { // the caller's digest is of no attempts: it may not have received the answer yet
			a := renewal(remote.RenewRequest{OpenDigest: remote.Digest(nil)})
			require.Len(t, a.Open, 3)
			require.False(t, a.More)
			require.Equal(t, remote.Digest(a.Open), a.OpenDigest)
			for _, o := range a.Open {
				opened := answers[o.FlightID]
				require.Equal(t, remote.OpenAttempt{Key: opened.Flight.Key, FlightID: opened.Flight.ID, Nonce: opened.Flight.OpenAttempt().Nonce,
					Number: 1, FencingToken: opened.FencingToken}, o)
				require.NotNil(t, fd.Flight(o.Key).OpenAttempt())
			}
			require.Empty(t, renewal(remote.RenewRequest{OpenDigest: a.OpenDigest}).Open)
			rest := renewal(remote.RenewRequest{OpenDigest: remote.Digest(nil), After: a.Open[1].FlightID}).Open
			require.Equal(t, a.Open[2:], rest)
		}
		fd.Cancel(t, keyOf("1"), "enough")
		require.Equal(t, []flight.ID{keyOf("1").FlightID()}, renewal(remote.RenewRequest{}).CancelRequested)
		for _, a := range answers {
			report(t, fd, a, flight.OutcomeNotDone, "")
		}
		require.Equal(t, remote.Digest(nil), renewal(remote.RenewRequest{}).OpenDigest)
	})
}

func TestRenewListsInPages(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		const all = remote.MaxListed + 10
		for i := range all {
			req := openOf(fmt.Sprint(i), `{}`, flight.Policy{}, 1)
			req.Session = s
			proceed(t, fd, req)
		}
		seen := map[flight.ID]bool{}
		for r, more := (remote.RenewRequest{OpenDigest: "?"}), true; more; {
			a, err := fd.Remote().Renew(t.Context(), s, r)
			require.NoError(t, err)
			for _, o := range a.Open {
				require.False(t, seen[o.FlightID])
				seen[o.FlightID] = true
				r.After = o.FlightID
			}
			more = a.More
			require.Equal(t, more, len(seen) == remote.MaxListed)
		}
		require.Len(t, seen, all)
	})
}

// A verification holds its session, but is not an open attempt.
func TestRenewDoesNotListLookUps(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, _ := openedForVerification(t, fd)
		a, err := fd.Remote().Renew(t.Context(), req.Session, remote.RenewRequest{OpenDigest: "?"})
		require.NoError(t, err)
		require.Empty(t, a.Open)
		require.Equal(t, remote.Digest(nil), a.OpenDigest)
		require.Equal(t, 1, requireAs[*effect.SessionInUse](t, fd.Remote().CloseSession(t.Context(), req.Session)).Open)
	})
}

func TestSessionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}, 1)
		req.Session = s
		a := proceed(t, fd, req)
		require.Equal(t, s, requireAs[*effect.SessionInUse](t, fd.Remote().CloseSession(t.Context(), s)).Session)
		report(t, fd, a, flight.OutcomeNotDone, "")
		require.NoError(t, fd.Remote().CloseSession(t.Context(), s))
		require.NotContains(t, fd.Leases.Etcd.Sessions(), s)
		_, err := fd.Remote().Renew(t.Context(), s, remote.RenewRequest{})
		requireAs[*effect.LeaseLost](t, err)
		req.Nonce = flight.Nonce{2}
		_, err = fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)

		req.Key, req.Session = keyOf("2"), session(t, fd)
		b := proceed(t, fd, req)
		sleep(t, 20*time.Second) // never renewed
		require.Equal(t, flight.StateReady, fd.Flight(req.Key).State, "the sweeper has ended it")
		_, err = fd.Remote().Renew(t.Context(), req.Session, remote.RenewRequest{})
		requireAs[*effect.LeaseLost](t, err)
		require.NoError(t, fd.Remote().CloseSession(t.Context(), req.Session))
		require.Equal(t, flight.StateSucceeded, report(t, fd, b, flight.OutcomeSucceeded, "ch_1").State, "a late report of the newest attempt counts")
	})
}

// An opener that is blocked by an ended session has the session checked, and does not wait for the sweeper's next
// round.
func TestHazard19_AnOpenerHasTheHolderChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true, ConfigureRemote: func(cfg *remote.Config) {
			cfg.Checker = checker(func(s flight.Session) {})
		}})
		var checked []flight.Session
		other := fd.Restart(t, flightdtest.Options{NoSweeper: true, ConfigureRemote: func(cfg *remote.Config) {
			cfg.Checker = checker(func(s flight.Session) { checked = append(checked, s) })
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}, 1)
		req.Session = session(t, fd)
		holder := proceed(t, fd, req).Flight.OpenAttempt().Session
		next := openOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}, 2)
		_, err := other.Remote().Open(t.Context(), next)
		requireAs[*effect.Busy](t, err)
		require.Equal(t, []flight.Session{holder}, checked)
		next.Wait = 10 * time.Second
		_, err = other.Remote().Open(t.Context(), next)
		requireAs[*effect.Busy](t, err)
		require.GreaterOrEqual(t, len(checked), 6, "about once a second")

		checked = nil
		fd.Leases.Etcd.Expire(holder.ID)
		req.Session = ""
		_, err = other.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		require.Equal(t, []flight.Session{holder}, checked, "the caller of an ended session has it checked, too")
		sleep(t, time.Second)
		require.NoError(t, fd.Sweeper.Sweep(t.Context()))
		proceed(t, other, next)
	})
}

type checker func(flight.Session)

func (c checker) Check(s flight.Session) { c(s) }

// Trust is computed from the node's own last renewal; a session with little trust is renewed first.
func TestTrust(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		s := session(t, fd)
		sleep(t, 11*time.Second)
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = s
		require.Equal(t, 12*time.Second, proceed(t, fd, req).Trust)
		sleep(t, 8*time.Second)
		fd.Leases.SlowAnswers(time.Second)
		sent := time.Now()
		again := proceed(t, fd, req)
		require.LessOrEqual(t, time.Until(sent.Add(again.Trust)), 12*time.Second)
		require.Greater(t, again.Trust, 10*time.Second)
	})
}

// A caller counts its trust from when it sent the request. The node adds the waiting time to the trust, otherwise each
// long wait would end with expired trust.
func TestTrustOfCallersThatWaited(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		first := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		const held = 10 * time.Second
		go func() {
			time.Sleep(held) // virtual
			_, _ = fd.Remote().Report(t.Context(), reportOf(first, flight.OutcomeNotDone, ""))
		}()
		second := openOf("1", `{}`, flight.Policy{}, 2)
		second.Wait = 30 * time.Second
		sent := time.Now()
		a := proceed(t, fd, second)
		require.GreaterOrEqual(t, time.Since(sent), held)
		left := time.Until(sent.Add(a.Trust))
		require.LessOrEqual(t, left, 12*time.Second, "never longer than the session's own trust")
		require.Greater(t, left, 6*time.Second, "a session with less than half of its trust is renewed")
	})
}

// etcd decides whether a session lives, not the memory of a node that has not seen the session's renewals.
func TestASessionThatIsRenewedElsewhere(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) error{
		"renew": func(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) error {
			a, err := fd.Remote().Renew(t.Context(), req.Session, remote.RenewRequest{})
			require.Positive(t, a.Trust)
			return err
		},
		"open": func(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) error {
			req.Key, req.Nonce = keyOf("2"), flight.Nonce{2}
			proceed(t, fd, req)
			return nil
		},
		"the same open again": func(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) error {
			proceed(t, fd, req)
			return nil
		},
		"report and close": func(t *testing.T, fd *flightdtest.Flightd, req remote.OpenRequest) error {
			report(t, fd, proceed(t, fd, req), flight.OutcomeNotDone, "")
			require.Zero(t, claimsOf(t, fd))
			return fd.Remote().CloseSession(t.Context(), req.Session)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, here *flightdtest.Flightd) {
				there := here.Restart(t, flightdtest.Options{})
				req := openOf("1", `{}`, flight.Policy{}, 1)
				req.Session = session(t, here)
				proceed(t, here, req)
				renew(t, there, req.Session, 20*time.Second)
				require.NoError(t, ask(t, here, req))
			})
		})
	}
}

// A session ends in etcd while this node still trusts it. An open under it does not proceed: the claim finds no session
// key.
func TestASessionThatEndsUnseen(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		fd.Leases.Etcd.Expire(req.Session)
		_, err := fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		sleep(t, 3*time.Second)
		require.Equal(t, flight.StateInDoubt, fd.Flight(req.Key).State, "the attempt has ended")
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, req)))
		require.Equal(t, flight.StateReady, fd.Flight(req.Key).State)
	})
}

// A caller waits at one node for another holder's attempt, and meanwhile renews its session through another node.
func TestASessionThatIsRenewedElsewhereWhileItsCallerWaits(t *testing.T) {
	bubble(t, func(t *testing.T, here *flightdtest.Flightd) {
		there := here.Restart(t, flightdtest.Options{})
		first := openOf("1", `{}`, flight.Policy{}, 1)
		first.Session = session(t, there)
		defer keepRenewed(t, there, first.Session)()
		a := proceed(t, there, first)
		req := openOf("1", `{}`, flight.Policy{}, 2)
		req.Session, req.Wait = session(t, here), time.Hour
		opened := make(chan error, 1)
		go func() {
			a, err := here.Remote().Open(t.Context(), req)
			if err == nil && a.Decision != flight.DecisionProceed {
				err = errors.New(a.Decision.String())
			}
			opened <- err
		}()
		renew(t, there, req.Session, 100*time.Second)
		report(t, there, a, flight.OutcomeNotDone, "")
		require.NoError(t, <-opened)
	})
}

// A one-shot session ends with its report, even if the node that created it no longer tracks it.
func TestAOneShotSessionThatIsRenewedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, here *flightdtest.Flightd) {
		there := here.Restart(t, flightdtest.Options{})
		a := proceed(t, here, openOf("1", `{}`, flight.Policy{}, 1))
		renew(t, there, a.Session, 20*time.Second)
		report(t, here, a, flight.OutcomeSucceeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.Etcd.Sessions(), a.Session)
	})
}

// A caller without a session never gets lease_lost: if etcd is down, the caller may retry.
func TestAOneShotSessionIsLostOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		short := func(id string) remote.OpenRequest {
			req := openOf(id, `{}`, flight.Policy{}, 1)
			req.TTL, req.Wait = 6*time.Second, time.Minute
			return req
		}
		proceed(t, fd, short("1")) // from now on the pool has sessions
		synctest.Wait()
		fd.Leases.Freeze()
		const callers = 8
		answers := make(chan error, callers)
		for i := range callers {
			go func() {
				_, err := fd.Remote().Open(t.Context(), short(fmt.Sprintf("late-%d", i)))
				answers <- err
			}()
			sleep(t, 100*time.Millisecond)
		}
		for range callers {
			err := <-answers
			lost, unavailable := new(effect.LeaseLost), new(effect.Unavailable)
			require.True(t, errors.As(err, &lost) || errors.As(err, &unavailable), "%v", err)
		}
		fd.Leases.Thaw()
		sleep(t, 20*time.Second)
		f := fd.Flight(keyOf("late-0"))
		require.NotNil(t, f, "it was opened")
		_, err := fd.Remote().Open(t.Context(), short("late-0"))
		requireAs[*effect.Fenced](t, err)
		require.NoError(t, fd.Remote().Abandon(t.Context(), abandonOf(fd, short("late-0"))))
		again := short("late-0")
		again.Nonce = flight.Nonce{2}
		proceed(t, fd, again)
	})
}

// closingLeases runs a function before a session ends in etcd, and another one after a session was found.
type closingLeases struct {
	lease.Service
	beforeEnd, afterFound func(flight.SessionID)
}

func (l *closingLeases) EndSession(ctx context.Context, id flight.SessionID) error {
	if l.beforeEnd != nil {
		l.beforeEnd(id)
	}
	return l.Service.EndSession(ctx, id)
}

func (l *closingLeases) Session(ctx context.Context, id flight.SessionID) (lease.Session, error) {
	s, err := l.Service.Session(ctx, id)
	if l.afterFound != nil && err == nil {
		l.afterFound(id)
	}
	return s, err
}

// A session is closed in the moment in which an open under it would be granted. The ledger decides: it accepts the close only
// of a session that holds no flight, and then grants nothing under the session.
func TestHazard55_SessionClosedBesideAnOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := new(closingLeases)
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) { leases.Service, cfg.Leases = cfg.Leases, leases }})
		s := session(t, fd)
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = s
		var opened error
		leases.beforeEnd = func(flight.SessionID) { _, opened = fd.Remote().Open(t.Context(), req) }
		require.NoError(t, fd.Remote().CloseSession(t.Context(), s))
		requireAs[*effect.LeaseLost](t, opened)
		require.Nil(t, fd.Flight(req.Key), "no attempt of a session that has ended")
		require.NoError(t, fd.Remote().CloseSession(t.Context(), s), "a repeat")
	})
}

// An open meets a session that its owner has just closed. The node does not stop, so the answer is lease_lost, not draining.
func TestOpen_UnderASessionThatIsBeingClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := new(closingLeases)
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) { leases.Service, cfg.Leases = cfg.Leases, leases }})
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, fd)
		leases.afterFound = func(id flight.SessionID) { require.NoError(t, leases.Service.EndSession(t.Context(), id)) }
		_, err := fd.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		_, err = fd.Remote().Renew(t.Context(), req.Session, remote.RenewRequest{})
		requireAs[*effect.LeaseLost](t, err)
	})
}
