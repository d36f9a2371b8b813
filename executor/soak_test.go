package executor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// soak is a cluster with random faults: nodes lose etcd, the ledger stalls and loses answers, one node is stopped,
// handlers are slow, fail, panic and end their goroutines before and after the effect, and callers leave.
type soak struct {
	t     *testing.T
	rnd   *rand.Rand
	mu    sync.Mutex // guards rnd
	nodes []*flightdtest.Flightd
	over  chan struct{}

	effects map[flight.Key]*provider
}

func (s *soak) randN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *soak) randDuration(most time.Duration) time.Duration {
	return time.Duration(s.randN(int(most)))
}

// TestSoak compares the results with the provider's own count of effects, for every recovery. It runs at night: in short runs the soak of
// package remote, whose callers have the same faults and whose nodes die as well, stands for both.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short")
	}
	base := rand.Uint64()
	for seed := base; seed < base+15; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { soakOnce(t, seed) })
		})
	}
}

func soakOnce(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	first := flightdtest.Open(t, flightdtest.Options{})
	s := &soak{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), over: make(chan struct{}), effects: map[flight.Key]*provider{},
		nodes: []*flightdtest.Flightd{first, first.Restart(t, flightdtest.Options{}), first.Restart(t, flightdtest.Options{})}}
	var callers, trouble sync.WaitGroup
	trouble.Go(s.trouble)
	trouble.Go(func() { // one node is stopped during the soak, as for a deploy
		time.Sleep(s.randDuration(time.Minute))
		ctx, cancel := context.WithTimeout(context.Background(), s.randDuration(time.Minute))
		defer cancel()
		_ = s.nodes[2].Close(ctx) // an error if effects ignore their contexts
	})
	for i := range 30 {
		call := callOf(fmt.Sprint(i), `{}`, flight.Policy{Recovery: recoveries[i%3], AttemptTimeout: time.Duration(i%2) * 20 * time.Second,
			Retry: flight.RetryPolicy{Attempts: 1 + i%4, MinBackoff: time.Second}})
		p := &provider{Say: func(string, ...any) {}, Honours: i%3 == int(flight.RecoveryResend)}
		s.effects[call.Key] = p
		call.LookUp = lookUpAt(p)
		for range 3 {
			callers.Go(func() { s.caller(call, p) })
		}
	}
	callers.Wait()
	close(s.over)
	trouble.Wait()
	sleep(t, 10*time.Minute) // all sessions and delays are over
	for key, p := range s.effects {
		s.judge(key, p)
	}
}

// trouble causes the faults of etcd and of the ledger.
func (s *soak) trouble() {
	for {
		select {
		case <-s.over:
			s.heal()
			return
		case <-time.After(s.randDuration(10 * time.Second)):
		}
		n := s.nodes[s.randN(len(s.nodes))]
		switch s.randN(8) {
		case 0, 1:
			n.Leases.Partition([...]leasetest.Cut{leasetest.CutRequests, leasetest.CutAnswers}[s.randN(2)])
		case 2:
			n.Leases.Suspend(s.randDuration(20 * time.Second))
		case 3:
			n.Leases.LoseAnswers(1 + s.randN(3))
		case 4:
			n.Ledger.LoseAnswers(1 + s.randN(3))
		case 5:
			n.Ledger.Stall()
		default:
			s.heal()
		}
	}
}

func (s *soak) heal() {
	for _, n := range s.nodes {
		n.Leases.Partition(leasetest.CutNothing)
	}
	s.nodes[0].Ledger.Heal()
}

// caller calls a few times, at random nodes, and does not always wait for the answer.
func (s *soak) caller(call effect.Call, p *provider) {
	for range 4 {
		time.Sleep(s.randDuration(20 * time.Second))
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second+s.randDuration(2*time.Minute))
		result, err := s.nodes[s.randN(len(s.nodes))].Do(ctx, call, s.handler(p))
		cancel()
		require.False(s.t, err == nil && result.Answer.ExternalID != "ch_1", "%s: receipt of %q", call.Key, result.Answer.ExternalID)
	}
}

func (s *soak) handler(p *provider) effect.Handler {
	return func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		time.Sleep(s.randDuration(2 * time.Second))
		if err := at.Sending(); err != nil {
			return effect.Answer{}, err
		}
		if s.randN(5) == 0 {
			return effect.Answer{}, effect.NotDone(errors.New("connection refused"))
		}
		if err := s.randError(); err != nil { // the effect did not happen
			return effect.Answer{}, err
		}
		answer := effectAt(p, at)
		time.Sleep(s.randDuration(30 * time.Second))
		return answer, s.randError() // the effect happened
	}
}

// randError returns, panics with or exits for an unknown outcome. It returns nil for a known one.
func (s *soak) randError() error {
	switch s.randN(9) {
	case 0:
		return errReset
	case 1:
		runtime.Goexit()
	case 2:
		panic("boom")
	}
	return nil
}

// judge checks the guarantees for one flight.
func (s *soak) judge(key flight.Key, p *provider) {
	s.t.Helper()
	f := s.nodes[0].Flight(key)
	require.LessOrEqual(s.t, p.Effects(), 1, "%s: effects", key)
	if f == nil {
		require.Zero(s.t, p.Effects())
		return
	}
	require.False(s.t, f.Overlap, "%s", key)
	require.Nil(s.t, f.OpenAttempt(), "%s: nothing is left open: %v", key, f.State)
	switch f.State {
	case flight.StateSucceeded:
		require.Equal(s.t, 1, p.Effects(), "%s succeeded", key)
	case flight.StateFailed, flight.StateCancelled:
		require.Zero(s.t, p.Effects(), "%s ended without an effect", key)
	default: // ready, verifying or in doubt: the state says so, and the next caller or a person continues
		require.True(s.t, p.Effects() == 0 || f.Tainted(), "%s: %v, an effect that the ledger excludes", key, f.State)
	}
}
