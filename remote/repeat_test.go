package remote_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// After a lost answer, a repeat with the same nonce gets the same answer, with any session, from this node and from
// another.
func TestHazard10_Repeats(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				req := openOf("1", `{}`, flight.Policy{}, 1)
				if ofSession {
					req.Session = session(t, fd)
				}
				fd.Ledger.LoseAnswers(2)
				a := proceed(t, fd, req)
				next := fd.Restart(t, flightdtest.Options{})
				for i, session := range []flight.SessionID{req.Session, "", session(t, fd)} {
					again := req
					again.Session = session
					for _, at := range []*flightdtest.Flightd{fd, next} {
						b := proceed(t, at, again)
						require.Equal(t, a.FencingToken, b.FencingToken, "repeat %d", i)
						require.Equal(t, a.Session, b.Session, "the attempt's session")
					}
				}
				require.EqualValues(t, 1, fd.Flight(req.Key).AttemptCount)
				require.Equal(t, 1, claimsOf(t, fd))
				report(t, next, a, flight.OutcomeNotDone, "")
				_, err := fd.Remote().Open(t.Context(), req)
				requireAs[*effect.Fenced](t, err) // the nonce is used
				req.Nonce = flight.Nonce{2}
				d := proceed(t, fd, req)
				require.EqualValues(t, 1, d.Previous.Number)
				require.Equal(t, flight.OutcomeNotDone, d.Previous.Outcome)
			})
		})
	}
}

// The connection breaks during the open: the attempt is still open when the caller repeats the open, and no node
// abandons it.
func TestHazard08_CallerLeavesDuringOpen(t *testing.T) {
	for _, point := range []string{"before-open", "during-open", "after-open"} {
		t.Run(point, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				ctx, cut := context.WithCancel(t.Context())
				other := fd.Restart(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) {
					cfg.Crash = func(p string) {
						if p == point {
							cut()
						}
					}
				}})
				req := openOf("1", `{}`, flight.Policy{}, 1)
				answer, err := other.Remote().Open(ctx, req)
				require.NoError(t, err, "the caller may have closed only its half of the connection")
				require.Equal(t, flight.DecisionProceed, answer.Decision)
				sleep(t, 5*time.Second)
				require.NotNil(t, fd.Flight(req.Key).OpenAttempt())
				a := proceed(t, fd, req)
				require.EqualValues(t, 1, a.Flight.AttemptCount)
				report(t, other, a, flight.OutcomeSucceeded, "ch_1")
				require.Zero(t, claimsOf(t, fd))
			})
		})
	}
}

// A caller without a nonce cannot repeat its open: if it leaves, its attempt is abandoned. The flight is not in doubt,
// and the key is free before the session ends.
func TestNoNonce_AbandonedWhenCallerLeaves(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				ctx, cut := context.WithCancel(t.Context())
				other := fd.Restart(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) {
					cfg.Crash = func(p string) {
						if p == "after-open" {
							cut()
						}
					}
				}})
				req := openOf("1", `{}`, flight.Policy{}, 0)
				req.NoNonce = true
				if ofSession {
					req.Session = session(t, other)
				}
				answer, err := other.Remote().Open(ctx, req)
				require.ErrorIs(t, err, context.Canceled, "%v", answer.Decision)
				require.Zero(t, claimsOf(t, fd))
				require.Equal(t, flight.StateReady, fd.Flight(req.Key).State)
				require.Equal(t, ofSession, slices.Contains(fd.Leases.Etcd.Sessions(), fd.Flight(req.Key).Newest().Session.ID))
				sleep(t, time.Minute)
				require.False(t, fd.Flight(req.Key).Tainted())
				proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 2))
			})
		})
	}
}

// An Open is in the log of a leader that has lost its quorum, and the next leader commits it. The caller repeats the
// open and may act; the delayed Open does not revoke that.
func TestHazard08_DelayedOpenBelongsToItsCaller(t *testing.T) {
	for name, ofSession := range map[string]bool{"session": true, "one shot": false} {
		t.Run(name, func(t *testing.T) {
			withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
				req := openOf("1", `{}`, flight.Policy{}, 1)
				if ofSession {
					req.Session = session(t, there)
					defer keepRenewed(t, there, req.Session)()
				}
				a.set(faultHoldCommands)
				_, err := here.Remote().Open(t.Context(), req)
				require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
				acts := proceed(t, there, req) // as a client does after a 503: the same open at the next server
				for _, reply := range a.deliver(t.Context()) {
					require.NotEqual(t, flight.DecisionFenced, reply.Decision)
				}
				renew(t, there, acts.Session, 20*time.Second)
				second, err := here.Remote().Open(t.Context(), openOf("1", `{}`, flight.Policy{}, 2))
				requireAs[*effect.Busy](t, err)
				require.Empty(t, second.Decision)
				f := report(t, there, acts, flight.OutcomeSucceeded, "ch_1")
				require.EqualValues(t, 1, f.AttemptCount)
				require.False(t, f.Tainted())
				require.Zero(t, claimsOf(t, there))
			})
		})
	}
}

// A node answers a repeat from its own view, even a stale one, but only after it has renewed the attempt's session. If
// the session has ended, the node answers lease_lost, and the caller's abandon removes the doubt.
func TestHazard29_ARepeatAtANodeThatLagsBehind(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, there)
		acts := proceed(t, there, req)
		a.stopReading()
		require.Equal(t, acts.FencingToken, proceed(t, here, req).FencingToken)
		there.Leases.Etcd.Expire(req.Session) // this node still trusts the session
		sleep(t, 3*time.Second)
		require.Equal(t, flight.StateInDoubt, there.Flight(req.Key).State)
		_, err := here.Remote().Open(t.Context(), req)
		requireAs[*effect.LeaseLost](t, err)
		require.NoError(t, here.Remote().Abandon(t.Context(), abandonOf(here, req)))
		require.Equal(t, flight.StateReady, there.Flight(req.Key).State)
		require.False(t, there.Flight(req.Key).Tainted())
		a.resumeReading()
		req.Nonce, req.Session = flight.Nonce{2}, ""
		proceed(t, here, req)
	})
}

// A node that does not know the attempt proposes the repeat. The one-shot session of the repeat ends; the attempt's
// session does not.
func TestHazard29_ARepeatAtANodeThatKnowsNothing(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		a.stopReading()
		acts := proceed(t, there, req)
		waitForReleases(t)
		sessions := len(there.Leases.Etcd.Sessions())
		b := proceed(t, here, req)
		require.Equal(t, acts.FencingToken, b.FencingToken)
		require.Equal(t, acts.Session, b.Session)
		waitForReleases(t)
		require.LessOrEqual(t, len(there.Leases.Etcd.Sessions()), sessions+8, "only the pool of the second node is new")
		require.Equal(t, 1, claimsOf(t, there))
		_, err := here.Remote().Renew(t.Context(), acts.Session, remote.RenewRequest{})
		require.NoError(t, err)
		report(t, here, b, flight.OutcomeSucceeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.Etcd.Sessions(), acts.Session)
	})
}

// An attempt is lost before its opener receives the answer. The nonce is fenced; the caller abandons it, and no doubt
// is left.
func TestHazard07_LostBeforeItsCallerHeard(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		a.set(faultLoseAnswers)
		_, err := here.Remote().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		sleep(t, 20*time.Second) // the session is not renewed
		require.Equal(t, flight.StateInDoubt, there.Flight(req.Key).State)
		for _, at := range []*flightdtest.Flightd{there, here} {
			_, err = at.Remote().Open(t.Context(), req)
			requireAs[*effect.Fenced](t, err) // not in_doubt, which would be final
			a.set(faultNone)
		}
		require.NoError(t, there.Remote().Abandon(t.Context(), abandonOf(there, req)))
		require.Equal(t, flight.StateReady, there.Flight(req.Key).State)
		req.Nonce = flight.Nonce{2}
		proceed(t, there, req)
	})
}

// If nothing was proposed, in_doubt is answered from the view. If the Open was proposed, the ledger answers and marks
// the nonce.
func TestInDoubt(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		a.stopReading()
		acts := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		waits, lags := openOf("1", `{}`, flight.Policy{}, 2), openOf("1", `{}`, flight.Policy{}, 3)
		waits.Wait, lags.Wait = time.Minute, time.Minute
		answered := make(chan error, 1)
		go func() { _, err := there.Remote().Open(t.Context(), waits); answered <- err }()
		synctest.Wait()
		report(t, there, acts, flight.OutcomeUnknown, "")
		require.False(t, requireAs[*effect.InDoubt](t, <-answered).Proposed, "the call has only waited")

		// A node with a stale view proposes. The ledger marks the nonce, and a repeat gets the same answer.
		for range 2 {
			_, err := here.Remote().Open(t.Context(), lags)
			require.True(t, requireAs[*effect.InDoubt](t, err).Proposed)
			a.resumeReading()
		}
		there.Resolve(t, waits.Key, flight.FindingNotHappened, "", nil)
		_, err := here.Remote().Open(t.Context(), lags)
		requireAs[*effect.Fenced](t, err) // the caller has abandoned the nonce: nothing opens
		waitForReleases(t)
		require.NotContains(t, there.Leases.Etcd.Sessions(), acts.Session)
	})
}
