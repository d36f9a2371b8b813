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
		_, err := there.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
		require.NoError(t, err)
		nobodyElseActs(t, there, acts)
		f, err := there.Desk().Report(t.Context(), reportOf(acts, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Zero(t, claimsOf(t, there))
	})
}

// The claim goes while a sending of the open looks that does not stay. The next one meets none, and acts; the node that made
// that claim knows as little of it as of the first.
func TestUnstick_WhatOpenedBehindTheOneThatLooked(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, _ *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		req.Wait = time.Millisecond
		acts, err := comesBack(t, there, req, time.Minute, req.Session, req.Nonce)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, acts.Decision)
		l.heal()
		asleep(t, 5*time.Second)
		_, err = there.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{req.Nonce}})
		require.NoError(t, err)
		nobodyElseActs(t, there, acts)
		f, err := there.Desk().Report(t.Context(), reportOf(acts, flight.Succeeded, "ch_1"))
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Zero(t, claimsOf(t, there))
	})
}

// The other node's word comes right before the open: its nonce opens nothing any more.
func TestUnstick_WhatWasAbandonedBeforeIsNotActedFor(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, b *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		b.open = func() {
			l.heal()
			asleep(t, 5*time.Second)
		}
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

// The same, and the sending that took the claim out of the way has gone: the repeat finds an open attempt of its own, under a claim
// that is gone.
func TestUnstick_ARepeatOfAnOpenWithoutItsClaim(t *testing.T) {
	stuckClaim(t, func(t *testing.T, l *delayed, _ *before, there *flightdtest.Flightd, req executor.OpenRequest) {
		req.Wait = time.Millisecond
		for claimsOf(t, there) > 0 {
			_, err := there.Desk().Open(t.Context(), req)
			requireAs[*effect.Busy](t, err)
			asleep(t, 500*time.Millisecond)
		}
		reply, err := there.Ledger.Propose(t.Context(), l.stuck)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, reply.Decision)
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

// comesBack opens again and again, for as long as somebody else is in the way, and renews a session meanwhile.
func comesBack(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest, most time.Duration, renews flight.SessionID, nonces ...flight.Nonce) (executor.OpenAnswer, error) {
	t.Helper()
	if nonces == nil {
		nonces = []flight.Nonce{}
	}
	for began := time.Now(); ; asleep(t, 100*time.Millisecond) {
		_, err := fd.Desk().Renew(t.Context(), renews, executor.Renewal{Nonces: nonces})
		require.NoError(t, err)
		answer, err := fd.Desk().Open(t.Context(), req)
		if err == nil || time.Since(began) > most {
			return answer, err
		}
		requireAs[*effect.Busy](t, err)
	}
}

// A process dies between its claim for a caller's session and its open. The caller never comes back for that key, but its
// session lives on: it is renewed for other flights. The key is not lost to everybody else for as long.
func TestUnstick_ADeadProcessesClaimForALivingSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dying, next := w.crashing("a", "after-claim", flightdtest.Options{}), w.node("b", flightdtest.Options{})
		req := openOf("1", `{}`, flight.Policy{}, 1)
		req.Session = sessionOf(t, next.Flightd, time.Minute)
		go func() { _, _ = dying.Desk().Open(context.Background(), req) }()
		synctest.Wait()
		require.Equal(t, 1, claimsOf(t, next.Flightd))
		other := openOf("1", `{}`, flight.Policy{}, 2)
		other.Wait = 20 * time.Second
		acts, err := comesBack(t, next.Flightd, other, 15*time.Minute, req.Session)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, acts.Decision)
		_, err = next.Desk().Renew(t.Context(), req.Session, executor.Renewal{})
		require.NoError(t, err, "the session has lost nothing else")
	})
}

// A restart forgets under which nonce a caller was sent to look, so that a renewal does not tell that it has gone.
func TestUnstick_ALookThatNobodyMakesAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		fd.Leases.Freeze()
		next := fd.Restart(t, flightdtest.Options{})
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 20*time.Second
		more, err := comesBack(t, next, other, 15*time.Minute, req.Session)
		require.NoError(t, err)
		require.Equal(t, flight.Look, more.Decision)
		_, err = next.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen, Open: req})
		requireAs[*effect.Fenced](t, err)
	})
}

// Whoever looks and says so keeps its claim, however long it takes.
func TestUnstick_ALookThatIsMadeIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		other := req
		other.Session, other.Nonce, other.Wait = "", flight.Nonce{3}, 20*time.Second
		_, err := comesBack(t, fd, other, 30*time.Minute, req.Session, req.Nonce)
		requireAs[*effect.Busy](t, err)
		over, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.Happened, ExternalID: "ch_1"})
		require.NoError(t, err)
		require.Equal(t, flight.Replay, over.Decision)
	})
}

// A process that waits under a claim of its own session may do so for as long as it likes.
func TestUnstick_AProcessThatWaitsKeepsItsClaim(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Hour})
		call.LookUp = func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) {
			return flight.NoVerb, effect.Answer{}, nil
		}
		a := proceed(t, fd, executor.OpenRequest{Key: call.Key, Submission: call.Submission, Nonce: flight.Nonce{1}})
		_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		there := fd.Restart(t, flightdtest.Options{})
		waits := do(ctx, there, call, never(t))
		asleep(t, time.Second)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 1)
		other := openOf("1", `{}`, call.Submission.Policy, 2)
		other.Wait = 20 * time.Second
		renews := sessionOf(t, fd, time.Minute)
		_, err = comesBack(t, fd, other, 30*time.Minute, renews)
		requireAs[*effect.Busy](t, err)
		still, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Equal(t, claims, still)
		cancel()
		<-waits
	})
}
