package executor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// delayed is a node's way to the ledger on which an Open gets stuck, and nothing behind it goes through until heal.
type delayed struct {
	*flightdtest.Ledger
	mu    sync.Mutex
	cut   bool
	stuck *flight.Open
}

func (l *delayed) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	cut := l.cut
	if o, is := c.(*flight.Open); is && cut {
		l.stuck = o
	}
	l.mu.Unlock()
	if cut {
		return flight.Reply{}, executor.ErrAmbiguous
	}
	return l.Ledger.Propose(ctx, c)
}

func (l *delayed) heal() { l.mu.Lock(); l.cut = false; l.mu.Unlock() }

// before calls f before the next Open that a node proposes.
type before struct {
	*flightdtest.Ledger
	open func()
}

func (l *before) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if _, is := c.(*flight.Open); is && l.open != nil {
		f := l.open
		l.open = nil
		f()
	}
	return l.Ledger.Propose(ctx, c)
}

// stuckClaim is a bubble with two nodes. The first one claims a key for a caller's session and then does not reach the
// ledger; the caller gives it up, renews its session through the second one, and sends the same open there.
func stuckClaim(t *testing.T, run func(t *testing.T, l *delayed, b *before, there *flightdtest.Flightd, req executor.OpenRequest)) {
	synctest.Test(t, func(t *testing.T) {
		var l *delayed
		b := new(before)
		there := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			b.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = b
		}})
		here := there.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l = &delayed{Ledger: cfg.Ledger.(*flightdtest.Ledger), cut: true}
			cfg.Ledger = l
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		req.Session = sessionOf(t, there, time.Minute)
		_, err := here.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		req.Wait = 30 * time.Second
		run(t, l, b, there, req)
	})
}

// nobodyElseActs fails where another opener is told to act.
func nobodyElseActs(t *testing.T, fd *flightdtest.Flightd, acts executor.OpenAnswer) {
	t.Helper()
	other, err := fd.Desk().Open(t.Context(), openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 9))
	for _, e := range fd.Ledger.History(keyOf("1")) {
		t.Logf("%v attempt %d %v %s", e.Kind, e.Attempt, e.Outcome, e.Note)
	}
	require.Error(t, err, "attempt %d acts beside attempt %d, under hold", other.Flight.AttemptNumber(), acts.Flight.AttemptNumber())
}

// A node takes its caller's own claim out of the way, and lets it act. The node that made that claim still abandons the same
// open: what it says is not about this attempt.
func TestUnstick_WhatWasOpenedSinceIsNotAbandoned(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, _ *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		acts := proceed(t, there, req)
		l.heal()
		asleep(t, 5*time.Second)
		_, err := there.Desk().Renew(t.Context(), req.Session, []flight.Nonce{req.Nonce})
		require.NoError(t, err)
		nobodyElseActs(t, there, acts)
		f, err := there.Desk().Report(t.Context(), reportOf(acts, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Zero(t, claimsOf(t, there))
	})
}

// The other node's word comes right behind the open: its caller is not told to act for an attempt that is over.
func TestUnstick_WhatWasAbandonedAtOnceIsNotActedFor(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, _ *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		there.Ledger.Before(func(c flight.Command) {
			if o, is := c.(*flight.Open); is && o.Repeat {
				there.Ledger.Before(nil)
				l.heal()
				asleep(t, 5*time.Second)
				require.Nil(t, there.Flight(req.Key).OpenAttempt())
			}
		})
		_, err := there.Desk().Open(t.Context(), req)
		requireAs[*effect.Fenced](t, err)
		require.False(t, there.Flight(req.Key).Tainted())
		require.Zero(t, claimsOf(t, there))
	})
}

// The open that got stuck arrives when its claim was taken out of the way. Nobody acts under a claim that is gone.
func TestUnstick_AnOpenThatArrivesWithoutItsClaim(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, b *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		b.open = func() {
			reply, err := there.Ledger.Propose(t.Context(), l.stuck)
			require.NoError(t, err)
			require.Equal(t, flight.Proceed, reply.Decision)
		}
		acts, err := there.Desk().Open(t.Context(), req)
		require.Error(t, err, "%v under a claim that is gone", acts.Decision)
		l.heal()
		asleep(t, 5*time.Second)
		require.Equal(t, flight.Queued, there.Flight(req.Key).State, "nothing was sent, and nothing is in doubt")
		require.Zero(t, claimsOf(t, there))
		req.Nonce = flight.Nonce{2}
		nobodyElseActs(t, there, proceed(t, there, req))
	})
}
