package remote_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease/leasetest"
	"github.com/flightd/flightd/remote"
)

var (
	soakSeeds = flag.Int("soak.seeds", 15, "how many seeds TestSoak runs")
	soakSeed  = flag.Uint64("soak.seed", 0, "the first seed; 0: by chance")
)

// soak is a cluster with random faults. Two nodes serve callers that follow the protocol: callers repeat unanswered
// requests at any node, also twice at once, or abandon them; they die, freeze, and look up outcomes. Nodes are killed
// and replaced, lose the ledger, read it late, and lose etcd; claims are deleted.
type soak struct {
	*cluster
	over chan struct{}

	mu      sync.Mutex
	rnd     *rand.Rand
	nodes   []*node
	killed  int
	mayAct  map[flight.Key]map[*soakCaller]time.Time // the end of the trust of each caller that was answered proceed
	effects map[flight.Key]*provider
	stats   map[string]int
}

// TestSoak compares the results with the provider's own count of effects, and checks at every answer proceed that no
// other caller may act.
func TestSoak(t *testing.T) {
	seeds, base := *soakSeeds, *soakSeed
	if testing.Short() {
		seeds = min(seeds, 3)
	}
	if base == 0 {
		base = rand.Uint64()
	}
	for i := range seeds {
		seed := base + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { soakOnce(t, seed) })
		})
	}
}

func soakOnce(t *testing.T, seed uint64) {
	s := &soak{cluster: newCluster(t), rnd: rand.New(rand.NewPCG(seed, 2)), over: make(chan struct{}), stats: map[string]int{},
		mayAct: map[flight.Key]map[*soakCaller]time.Time{}, effects: map[flight.Key]*provider{}}
	s.transcript = new(transcript)
	s.nodes = []*node{s.node("n0", ""), s.node("n1", "")}
	var callers, trouble sync.WaitGroup
	for _, f := range []func(){s.troubleEtcd, s.troubleLedger, s.kill, s.removeClaims} {
		trouble.Go(f)
	}
	for i := range 15 {
		key := keyOf(fmt.Sprint(i))
		p := &provider{Say: func(string, ...any) {}, Honours: i%3 == int(flight.RecoveryResend)}
		s.effects[key] = p
		policy := flight.Policy{Recovery: recoveries[i%3], AttemptTimeout: time.Duration(i%2) * 20 * time.Second}
		for n := range 3 {
			c := &soakCaller{soak: s, key: key, submission: submissionOf(`{}`, policy), p: p, kept: n > 0, nonces: map[flight.Nonce]*nonceState{}}
			callers.Go(c.run)
		}
	}
	callers.Wait()
	close(s.over)
	trouble.Wait()
	s.heal()
	sleep(t, 5*time.Minute) // all sessions are over
	claims, err := s.nodes[0].leases.Claims(t.Context())
	require.NoError(t, err)
	require.Empty(t, claims)
	for key, p := range s.effects {
		s.judge(key, p)
	}
	t.Logf("%d nodes killed; %v", s.killed, s.stats)
}

// judge checks the guarantees for one key, and that nothing blocks the key.
func (s *soak) judge(key flight.Key, p *provider) {
	s.t.Helper()
	f, err := s.ledger.Flight(key.FlightID())
	require.NoError(s.t, err)
	require.LessOrEqual(s.t, p.Effects(), 1, "%s: effects", key)
	if f == nil {
		require.Zero(s.t, p.Effects())
		return
	}
	require.False(s.t, f.Overlap, "%s", key)
	require.Nil(s.t, f.OpenAttempt(), "%s: nothing is left open: %v", key, f.State)
	last := uint32(0)
	for _, e := range s.ledger.History(key) {
		if e.Kind == flight.EventOpened {
			require.Greater(s.t, e.Attempt, last, "%s: attempt numbers increase", key)
			last = e.Attempt
		}
	}
	switch f.State {
	case flight.StateSucceeded:
		require.Equal(s.t, 1, p.Effects(), "%s succeeded", key)
	case flight.StateFailed, flight.StateCancelled:
		require.Zero(s.t, p.Effects(), "%s ended without an effect", key)
	default: // ready, verifying or in doubt: the state says so
		require.True(s.t, p.Effects() == 0 || f.Tainted(), "%s: %v, an effect that the ledger excludes", key, f.State)
		a, err := s.nodes[1].Open(s.t.Context(), remote.OpenRequest{Key: key, Submission: flight.Submission{Fingerprint: f.Fingerprint, Input: f.Input, Policy: f.Policy},
			Nonce: flight.Nonce{99}, Wait: 40 * time.Second})
		doubt := new(effect.InDoubt)
		if err != nil {
			require.ErrorAs(s.t, err, &doubt, "%s is blocked in state %v", key, f.State)
		}
		s.count("last " + a.Decision.String())
	}
}

func (s *soak) randN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *soak) randDuration(most time.Duration) time.Duration {
	return time.Duration(s.randN(int(most)))
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats[what]++
}

// randomNode returns a random node.
func (s *soak) randomNode() *node {
	i := s.randN(2)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[i]
}

// every calls f at random intervals until the soak ends.
func (s *soak) every(most time.Duration, f func()) {
	for {
		select {
		case <-s.over:
			return
		case <-time.After(s.randDuration(most)):
			f()
		}
	}
}

func (s *soak) heal() {
	for _, n := range s.nodes {
		n.leases.Partition(leasetest.CutNothing)
		n.leases.SlowAnswers(time.Millisecond)
		n.ledger.deliver(s.t.Context())
		n.ledger.resumeReading()
	}
	s.ledger.Heal()
}

func (s *soak) troubleEtcd() {
	s.every(8*time.Second, func() {
		n := s.randomNode()
		switch s.randN(8) {
		case 0, 1:
			n.leases.Partition([...]leasetest.Cut{leasetest.CutRequests, leasetest.CutAnswers}[s.randN(2)])
		case 2:
			n.leases.Suspend(s.randDuration(20 * time.Second))
		case 3:
			n.leases.LoseAnswers(1 + s.randN(3))
		case 4:
			n.leases.SlowAnswers(s.randDuration(3 * time.Second))
		default:
			n.leases.Partition(leasetest.CutNothing)
			n.leases.SlowAnswers(0)
		}
	})
}

// troubleLedger loses, delays and duplicates the commands of one node, and delays its reads.
func (s *soak) troubleLedger() {
	s.every(8*time.Second, func() {
		n := s.randomNode()
		switch s.randN(8) {
		case 0:
			n.ledger.set(faultLoseAnswers)
		case 1:
			n.ledger.set(faultHoldCommands)
		case 2:
			n.ledger.stopReading()
		case 3:
			n.ledger.Lag(s.randN(20))
		case 4:
			s.ledger.LoseAnswers(1 + s.randN(3))
		case 5:
			n.ledger.resumeReading()
		default:
			copies := n.ledger.copies()
			n.ledger.deliver(s.t.Context())
			if s.randN(2) == 0 {
				n.ledger.redeliver(s.t.Context(), copies)
			}
		}
	})
}

// kill kills a node and starts another in its place.
func (s *soak) kill() {
	s.every(2*time.Minute, func() {
		i := s.randN(2)
		s.mu.Lock()
		s.killed++
		old := s.nodes[i]
		name := fmt.Sprintf("n%d", s.killed+1)
		s.mu.Unlock()
		next := s.node(name, "")
		s.mu.Lock()
		s.nodes[i] = next
		s.mu.Unlock()
		go old.die("killed")
		copies := old.ledger.copies()
		if s.randN(2) == 0 { // its held commands arrive after its death
			time.Sleep(s.randDuration(20 * time.Second))
			old.ledger.redeliver(s.t.Context(), copies)
		}
	})
}

// removeClaims deletes all claims, also of running effects, which harms nothing.
func (s *soak) removeClaims() {
	s.every(40*time.Second, func() {
		n := s.randomNode()
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if claims, err := n.leases.Claims(ctx); err == nil {
			_ = n.leases.RemoveClaims(ctx, claims)
		}
	})
}

// callNode runs a call that may block for good, because its node dies. It returns false then, and when ctx ends.
func callNode[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (answer T, err error, answered bool) {
	type back struct {
		answer T
		err    error
	}
	done := make(chan back, 1)
	go func() {
		a, err := f(ctx)
		done <- back{a, err}
	}()
	select {
	case b := <-done:
		return b.answer, b.err, ctx.Err() == nil
	case <-ctx.Done():
		return answer, ctx.Err(), false
	}
}

// recordMayAct checks that no other caller of the key may act, and records that c may.
func (s *soak) recordMayAct(c *soakCaller, number uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.mayAct[c.key]
	if all == nil {
		all = map[*soakCaller]time.Time{}
		s.mayAct[c.key] = all
	}
	for other, until := range all {
		require.False(s.t, other != c && !c.hasTimeout() && time.Now().Before(until), "%s: attempt %d may act, and so may another caller, for %v", c.key, number, time.Until(until))
	}
	all[c] = c.trusts
}

func (s *soak) recordMayNotAct(c *soakCaller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mayAct[c.key], c)
}
