package executor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// elsewhere is a bubble with two nodes. renew renews a session through the second one until the first one's own knowledge
// of it has run out, but not so long that the first one has forgotten its guest.
func elsewhere(t *testing.T, run func(t *testing.T, here, there *flightdtest.Flightd, renew func(flight.SessionID))) {
	t.Helper()
	bubble(t, func(t *testing.T, here *flightdtest.Flightd) {
		there := here.Restart(t, flightdtest.Options{})
		run(t, here, there, func(id flight.SessionID) {
			t.Helper()
			for range 4 {
				asleep(t, 5*time.Second)
				_, err := there.Desk().Renew(t.Context(), id, executor.Renewal{})
				require.NoError(t, err)
			}
		})
	})
}

func claimsOf(t *testing.T, fd *flightdtest.Flightd) int {
	t.Helper()
	released(t)
	claims, err := fd.Leases.Claims(t.Context())
	require.NoError(t, err)
	return len(claims)
}

// Whether a session lives is etcd's to say, not what a node remembers that has not seen its renewals.
func TestElsewhere_ALivingSessionIsNotLost(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) error{
		"renew": func(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) error {
			a, err := fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
			require.Positive(t, a.Trust)
			require.Equal(t, 5*time.Second, a.RenewEvery)
			return err
		},
		"open": func(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) error {
			req.Key, req.Nonce = keyOf("2"), flight.Nonce{2}
			a, err := fd.Desk().Open(t.Context(), req)
			require.Equal(t, flight.Proceed, a.Decision)
			return err
		},
		"the same open again": func(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) error {
			a, err := fd.Desk().Open(t.Context(), req)
			require.Equal(t, flight.Proceed, a.Decision)
			require.Positive(t, a.Trust)
			return err
		},
		"close": func(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) error {
			require.NoError(t, fd.Desk().CloseSession(t.Context(), req.Session))
			require.NotContains(t, fd.Leases.World.Sessions(), req.Session)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere(t, func(t *testing.T, here, _ *flightdtest.Flightd, renew func(flight.SessionID)) {
				req := openOf("1", `{}`, flight.Policy{}, 1)
				req.Session = session(t, here)
				proceed(t, here, req)
				renew(req.Session)
				require.NoError(t, ask(t, here, req))
			})
		})
	}
}

// A caller waits at one node for somebody else's claim and renews its session through the other one meanwhile.
func TestElsewhere_RenewedWhileItsCallerWaitsHere(t *testing.T) {
	elsewhere(t, func(t *testing.T, here, _ *flightdtest.Flightd, renew func(flight.SessionID)) {
		right := here.Leases.HoldElsewhere(t, keyOf("1"), "somebody")
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session, req.Wait = session(t, here), time.Hour
		opened := make(chan error, 1)
		go func() {
			a, err := here.Desk().Open(t.Context(), req)
			if err == nil && a.Decision != flight.Proceed {
				err = errors.New(a.Decision.String())
			}
			opened <- err
		}()
		for range 5 {
			renew(req.Session)
		}
		right.Release()
		require.NoError(t, <-opened)
	})
}

// What the node claimed before it lost sight of the session goes with the report, and the session stays.
func TestElsewhere_AReportLeavesNoClaim(t *testing.T) {
	elsewhere(t, func(t *testing.T, here, there *flightdtest.Flightd, renew func(flight.SessionID)) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, here)
		a := proceed(t, here, req)
		renew(req.Session)
		require.Equal(t, 1, claimsOf(t, there), "it stands as long as the session lives")
		_, err := here.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
		require.NoError(t, err)
		require.Zero(t, claimsOf(t, there))
		proceed(t, there, openOf("1", `{}`, flight.Policy{}, 2))
		_, err = here.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
		require.NoError(t, err)
	})
}

// What a node noted of an attempt that ended elsewhere goes with the next one of that flight.
func TestElsewhere_WhatIsOvertakenIsForgotten(t *testing.T) {
	elsewhere(t, func(t *testing.T, here, there *flightdtest.Flightd, renew func(flight.SessionID)) {
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = session(t, here)
		a := proceed(t, here, req)
		renew(req.Session)
		_, err := there.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
		require.NoError(t, err)
		require.Zero(t, claimsOf(t, there))
		next := openOf("1", `{}`, flight.Policy{}, 2)
		next.Session = session(t, here)
		b := proceed(t, here, next)
		require.Equal(t, 1, here.Desk().Notes())
		_, err = here.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{}})
		require.NoError(t, err)
		require.Equal(t, 1, claimsOf(t, here), "that of the caller that acts")
		_, err = here.Desk().Report(t.Context(), reportOf(b, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Zero(t, here.Desk().Notes())
	})
}

// A caller waits until it may look, with its claim, and the attempt that it was to look for reports after all that it did nothing.
// The caller is let through with the claim that it has: a report leaves that alone, at its own node and at another one.
func TestElsewhere_AReportTakesNoClaimOfAWaitingCaller(t *testing.T) {
	for name, same := range map[string]bool{"the same node": true, "another node": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, there *flightdtest.Flightd) {
				p := flight.Policy{Recovery: flight.Verify, SettleDelay: 10 * time.Second}
				a := proceed(t, there, openOf("1", `{}`, p, 1))
				_, err := there.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
				require.NoError(t, err)
				asleep(t, 10*time.Second) // over by the ledger's time; this node has yet to wait as long by its own
				here := there.Restart(t, flightdtest.Options{})
				req := openOf("1", `{}`, p, 2)
				req.Session, req.Wait = sessionOf(t, here, time.Minute), time.Minute
				opened := make(chan error, 1)
				go func() { _, err := here.Desk().Open(t.Context(), req); opened <- err }()
				asleep(t, 2*time.Second)
				require.Equal(t, 1, claimsOf(t, there))
				if same {
					there = here
				}
				_, err = there.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
				require.NoError(t, err)
				require.NoError(t, <-opened)
				require.EqualValues(t, 2, here.Flight(req.Key).OpenAttempt().Number)
				require.Equal(t, 1, claimsOf(t, here), "that of the caller that acts")
				asleep(t, 10*time.Second)
				require.Equal(t, flight.Running, here.Flight(req.Key).State)
				require.NotNil(t, here.Flight(req.Key).OpenAttempt(), "nobody has taken it for lost")
			})
		})
	}
}

// The same, and the caller's node has not heard yet that it was to look: what it asks for once more is let through.
func TestElsewhere_AReportTakesNoClaimOfAnOpenOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, there *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.Verify, SettleDelay: 10 * time.Second}
		a := proceed(t, there, openOf("1", `{}`, p, 1))
		_, err := there.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
		require.NoError(t, err)
		asleep(t, 10*time.Second)
		here := there.Restart(t, flightdtest.Options{})
		req := openOf("1", `{}`, p, 2)
		req.Session = sessionOf(t, here, time.Minute)
		there.Ledger.LoseAnswers(1)
		opens := 0
		there.Ledger.Before(func(c flight.Command) {
			if _, is := c.(*flight.Open); is {
				opens++
			}
			if opens == 2 {
				there.Ledger.Before(nil)
				_, err := there.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
				require.NoError(t, err)
				released(t)
			}
		})
		require.EqualValues(t, 2, proceed(t, here, req).Flight.AttemptNumber())
		for range 15 {
			asleep(t, 4*time.Second)
			_, err := here.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
			require.NoError(t, err)
			require.NotNil(t, here.Flight(req.Key).OpenAttempt(), "nobody has taken it for lost")
		}
		require.Equal(t, 1, claimsOf(t, here))
	})
}

// A session for one flight alone ends with its report, also where the node that made it has lost sight of it.
func TestElsewhere_AOneShotEndsWithItsReport(t *testing.T) {
	elsewhere(t, func(t *testing.T, here, there *flightdtest.Flightd, renew func(flight.SessionID)) {
		for name, again := range map[string]bool{"1": false, "2": true} {
			req := openOf(name, `{}`, flight.Policy{}, 1)
			a := proceed(t, here, req)
			renew(a.Session)
			if again { // it comes back to this node before it reports
				_, err := here.Desk().Renew(t.Context(), a.Session, executor.Renewal{})
				require.NoError(t, err)
			}
			_, err := here.Desk().Report(t.Context(), reportOf(a, flight.Succeeded, "ch_1"))
			require.NoError(t, err)
			require.Zero(t, claimsOf(t, there))
			synctest.Wait()
			require.NotContains(t, there.Leases.World.Sessions(), a.Session)
		}
	})
}

// A caller that was told elsewhere to act keeps its claim and its session, whatever the node that gave its open up cannot
// find out about it.
func TestElsewhere_NobodyEndsWhatNoneHasAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *cutOff
		there := flightdtest.Open(t, flightdtest.Options{})
		here := there.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l = &cutOff{Ledger: cfg.Ledger.(*flightdtest.Ledger), cut: 1}
			cfg.Ledger = l
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1) // one shot
		_, err := here.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		acts := proceed(t, there, req) // its answer was lost: the next server
		for range 200 {                // longer than anybody insists
			asleep(t, 4*time.Second)
			_, err := there.Desk().Renew(t.Context(), acts.Session, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
			require.NoError(t, err)
		}
		require.Equal(t, 1, claimsOf(t, there))
		f, err := there.Desk().Report(t.Context(), reportOf(acts, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.EqualValues(t, 1, f.AttemptCount)
		require.False(t, f.Tainted())
		require.Zero(t, claimsOf(t, there))
	})
}
