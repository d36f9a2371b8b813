package executor_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// deaf is a node's way to the ledger on which the answer to the first Open gets lost. It comes back when between has
// happened.
type deaf struct {
	*flightdtest.Ledger
	between func(*flight.Open)
	refuse  int // abandons that are not let through after that
}

func (l *deaf) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if _, is := c.(*flight.Abandon); is && l.refuse > 0 {
		l.refuse--
		return flight.Reply{}, executor.ErrAmbiguous
	}
	o, is := c.(*flight.Open)
	if f := l.between; is && f != nil {
		l.between = nil
		_, _ = l.Ledger.Propose(ctx, c)
		f(o)
		return flight.Reply{}, executor.ErrAmbiguous
	}
	return l.Ledger.Propose(ctx, c)
}

// unheard is a bubble with two nodes. The first one does not hear the answer to its Open, and by the time that it asks again
// its session is over, and the second one has found the attempt without a holder.
func unheard(t *testing.T, refuse int, meanwhile func(*flightdtest.Flightd), run func(t *testing.T, here, there *flightdtest.Flightd)) {
	synctest.Test(t, func(t *testing.T) {
		there := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
		here := there.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			l := &deaf{Ledger: cfg.Ledger.(*flightdtest.Ledger), refuse: refuse}
			l.between = func(o *flight.Open) {
				meanwhile(there)
				there.Leases.World.Expire(o.Claim.Session)
				require.NoError(t, there.Sweep(t.Context()))
				require.NotNil(t, there.Flight(o.Key).Newest())
				require.True(t, there.Flight(o.Key).Tainted())
			}
			cfg.Ledger = l
		}})
		run(t, here, there)
	})
}

// An attempt that was lost before its opener heard of it has sent nothing, and its opener says so.
func TestUnsent_ADoIsNoDoubt(t *testing.T) {
	for _, refuse := range []int{0, 3} {
		unheard(t, refuse, func(*flightdtest.Flightd) {}, func(t *testing.T, here, _ *flightdtest.Flightd) {
			c := new(counted)
			result, err := here.Do(t.Context(), callOf("1", `{}`, flight.Policy{Recovery: flight.Hold}), c.handle)
			require.NoError(t, err)
			require.Equal(t, effect.Executed, result.Source)
			require.EqualValues(t, 1, c.n.Load())
			require.EqualValues(t, 2, result.Attempt)
		})
	}
}

// The same for a caller of the desk, whose nonce has had its attempt.
func TestUnsent_AnOpenIsNoDoubt(t *testing.T) {
	unheard(t, 0, func(*flightdtest.Flightd) {}, func(t *testing.T, here, _ *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		_, err := here.Desk().Open(t.Context(), req)
		requireAs[*effect.Fenced](t, err)
		require.Equal(t, flight.Queued, here.Flight(req.Key).State)
		require.False(t, here.Flight(req.Key).Tainted())
		req.Nonce = flight.Nonce{2}
		proceed(t, here, req)
	})
}

// Where the caller came back through another node and was told to act there, nobody else can say that nothing was sent.
func TestUnsent_WhatWasToldElsewhereStaysADoubt(t *testing.T) {
	req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
	acts := func(there *flightdtest.Flightd) { _, _ = there.Desk().Open(context.Background(), req) }
	unheard(t, 0, acts, func(t *testing.T, here, _ *flightdtest.Flightd) {
		_, err := here.Desk().Open(t.Context(), req)
		requireAs[*effect.Fenced](t, err)
		require.True(t, here.Flight(req.Key).Newest().Told)
		require.Equal(t, flight.InDoubt, here.Flight(req.Key).State)
	})
}

// A repeat that comes too late says nothing about the attempt: its caller was told to act by the first answer.
func TestUnsent_ARepeatTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag := new(lagging)
		there := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
		behind := there.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			lag.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = lag
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		req.Session = session(t, there)
		acts := proceed(t, there, req)
		require.NoError(t, there.Leases.Remove(t.Context(), req.Key, acts.Flight.Newest().Claim))
		require.NoError(t, there.Sweep(t.Context()))
		require.Equal(t, flight.InDoubt, there.Flight(req.Key).State)
		released(t)
		lag.f = acts.Flight
		_, err := behind.Desk().Open(t.Context(), req)
		lag.f = nil
		requireAs[*effect.InDoubt](t, err)
		require.Equal(t, flight.InDoubt, there.Flight(req.Key).State)
	})
}
