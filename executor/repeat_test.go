package executor_test

import (
	"context"
	"errors"
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

// quorumless is a ledger that loses its quorum: Opens are in the old leader's log and will be committed by the next
// one, with the time that the old leader stamped; everything else is refused meanwhile.
type quorumless struct {
	*flightdtest.Ledger
	mu   sync.Mutex
	down bool
	log  []flight.Command
}

func (l *quorumless) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	if l.down {
		defer l.mu.Unlock()
		if o, ok := c.(*flight.Open); ok {
			if len(l.log) == 0 {
				l.log = append(l.log, o)
			}
			return flight.Reply{}, executor.ErrAmbiguous
		}
		return flight.Reply{}, errors.New("no leader")
	}
	l.mu.Unlock()
	return l.Ledger.Propose(ctx, c)
}

func (l *quorumless) fall() { l.mu.Lock(); l.down, l.log = true, nil; l.mu.Unlock() }

// rise: the new leader commits the log, as of so long ago.
func (l *quorumless) rise(t *testing.T, ago time.Duration) {
	l.mu.Lock()
	log := l.log
	l.down = false
	l.mu.Unlock()
	l.Ledger.Advance(-ago)
	for _, c := range log {
		r, err := l.Ledger.Propose(t.Context(), c)
		require.NoError(t, err)
		t.Logf("zombie open: %v", r.Decision)
	}
	l.Ledger.Advance(ago)
}

func quorumBubble(t *testing.T, run func(t *testing.T, fd *flightdtest.Flightd, l *quorumless)) {
	synctest.Test(t, func(t *testing.T) {
		var l *quorumless
		fd := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l = &quorumless{Ledger: cfg.Ledger.(*flightdtest.Ledger)}
			cfg.Ledger = l
		}})
		run(t, fd, l)
	})
}

// A repeat of an open that was told to act is not abandoned any more by the desk that gave up the first sending of it.
func TestRepeat_IsNotAbandonedOnceItWasToldToAct(t *testing.T) {
	quorumBubble(t, func(t *testing.T, fd *flightdtest.Flightd, l *quorumless) {
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		req.Session = session(t, fd)
		l.fall()
		_, err := fd.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		// What the client does with a 503: the same open, the same nonce.
		type answer struct {
			a   executor.OpenAnswer
			err error
		}
		told := make(chan answer, 1)
		req.Wait = 30 * time.Second
		go func() { a, err := fd.Desk().Open(t.Context(), req); told <- answer{a, err} }()
		asleep(t, 3*time.Second)
		l.rise(t, 0)
		got := <-told
		require.NoError(t, got.err)
		require.Equal(t, flight.Proceed, got.a.Decision, "the first caller acts from here on")
		require.Positive(t, got.a.Trust)
		asleep(t, 5*time.Second) // its effect is in the air; its session is healthy
		second := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 2)
		b, err := fd.Desk().Open(t.Context(), second)
		if err == nil && b.Decision == flight.Proceed {
			for _, e := range fd.Ledger.History(req.Key) {
				t.Logf("%v attempt %d %v %s", e.Kind, e.Attempt, e.Outcome, e.Note)
			}
			t.Fatalf("two attempts act at once under hold: %d and %d", got.a.Flight.AttemptNumber(), b.Flight.AttemptNumber())
		}
	})
}

// The claim of an open that is still being abandoned stands: whoever came meanwhile would take its attempt for one that acts.
func TestRepeat_ClaimStandsUntilTheOpenIsAbandoned(t *testing.T) {
	quorumBubble(t, func(t *testing.T, fd *flightdtest.Flightd, l *quorumless) {
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		l.fall()
		_, err := fd.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		released(t)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, claims, "the claim of an open that is not abandoned yet must stand")
	})
}

// So does a session that was made for that open alone.
func TestRepeat_SessionOfItsOwnLivesUntilTheOpenIsAbandoned(t *testing.T) {
	quorumBubble(t, func(t *testing.T, fd *flightdtest.Flightd, l *quorumless) {
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		l.fall()
		_, err := fd.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		asleep(t, 2*time.Second)
		l.rise(t, 0)
		require.NoError(t, fd.Sweep(t.Context()))
		for _, e := range fd.Ledger.History(req.Key) {
			require.NotEqual(t, flight.EventInDoubt, e.Kind, "nothing was ever sent: %v", err)
		}
	})
}

// sentToLook is a first attempt of unknown outcome, and an open under another session whose caller is sent to look for it.
func sentToLook(t *testing.T, fd *flightdtest.Flightd) (a executor.OpenAnswer, req executor.OpenRequest, looks executor.OpenAnswer) {
	t.Helper()
	p := flight.Policy{Recovery: flight.Verify, SettleDelay: time.Second}
	a = proceed(t, fd, openOf("1", `{}`, p, 1))
	_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.Unknown, ""))
	require.NoError(t, err)
	req = openOf("1", `{}`, p, 2)
	req.Session, req.Wait = sessionOf(t, fd, time.Minute), time.Minute
	looks, err = fd.Desk().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.Look, looks.Decision)
	return a, req, looks
}

// The repeat of a verdict leaves the claim alone of the attempt that the first one opened.
func TestVerdict_RepeatedTakesNoClaim(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, req, looks := sentToLook(t, fd)
		verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen, Open: req}
		verdict.Open.Nonce = flight.Nonce{3}
		first, err := fd.Desk().Verdict(t.Context(), verdict)
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, first.Decision)
		again, err := fd.Desk().Verdict(t.Context(), verdict) // its answer was lost
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, again.Decision, "the caller acts")
		require.Equal(t, first.FencingToken, again.FencingToken)
		released(t)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		t.Logf("claims while it acts: %d", len(claims))
		// Somebody else comes. The first one acts, under a session that is renewed.
		other := openOf("1", `{}`, req.Submission.Policy, 4)
		other.Session, other.Wait = sessionOf(t, fd, time.Minute), 20*time.Second
		next, err := fd.Desk().Open(t.Context(), other)
		if err != nil {
			requireAs[*effect.Busy](t, err)
			return
		}
		require.Equal(t, flight.Look, next.Decision)
		for _, e := range fd.Ledger.History(req.Key) {
			t.Logf("%v attempt %d %v %s", e.Kind, e.Attempt, e.Outcome, e.Note)
		}
		_, err = fd.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{{3}}})
		require.NoError(t, err)
		last, err := fd.Desk().Verdict(t.Context(), executor.VerdictRequest{
			ID: next.Flight.ID, Probe: next.Probe, Result: flight.DidNotHappen, Open: executor.OpenRequest{Nonce: flight.Nonce{5}, Session: other.Session},
		})
		require.NoError(t, err)
		t.Fatalf("attempt %d: %v beside attempt %d, whose session lives", last.Flight.AttemptNumber(), last.Decision, again.Flight.AttemptNumber())
	})
}

// A verdict that is too late leaves the session of somebody else alone, who acts.
func TestVerdict_LateEndsNobodysSession(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a, req, looks := sentToLook(t, fd)
		// The first attempt's own late word: it did nothing.
		_, err := fd.Desk().Report(t.Context(), reportOf(a, flight.NotDone, ""))
		require.NoError(t, err)
		released(t)
		acts := proceed(t, fd, openOf("1", `{}`, req.Submission.Policy, 3)) // one shot
		verdict := executor.VerdictRequest{ID: looks.Flight.ID, Probe: looks.Probe, Result: flight.DidNotHappen, Open: req}
		verdict.Open.Nonce, verdict.Open.Wait = flight.Nonce{4}, 0
		_, err = fd.Desk().Verdict(t.Context(), verdict)
		t.Logf("late verdict: %v", err)
		released(t)
		require.Contains(t, fd.Leases.World.Sessions(), acts.Session, "the session of the caller that acts")
	})
}

// A caller with another input gets no receipt by way of one that declared none.
func TestJoin_AnotherInputGetsNoReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, on := make(chan struct{}), make(chan struct{})
		first := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			cfg.Crash = func(p string) {
				if p == "after-claim" {
					close(at)
					<-on
				}
			}
		}})
		second := first.Restart(t, flightdtest.Options{})
		c := new(counted)
		one := do(t.Context(), first, callOf("1", `{"amount":1}`, flight.Policy{}), c.handle)
		<-at
		free := callOf("1", `{"amount":9}`, flight.Policy{})
		free.Submission.Fingerprint = flight.NoFingerprint
		two := do(t.Context(), second, free, never(t))
		synctest.Wait()
		three := do(t.Context(), second, callOf("1", `{"amount":2}`, flight.Policy{}), never(t))
		synctest.Wait()
		close(on)
		require.NoError(t, (<-one).err)
		require.NoError(t, (<-two).err)
		got := <-three
		require.Error(t, got.err, "amount 2 is told %q, the receipt of amount 1, as %v", got.result.Answer.Body, got.result.Source)
	})
}

// An outage that is longer than an open lives leaves no doubt behind where nothing was sent.
func TestOutageLongerThanAnOpenLivesIsNoDoubt(t *testing.T) {
	quorumBubble(t, func(t *testing.T, fd *flightdtest.Flightd, l *quorumless) {
		call := callOf("1", `{}`, flight.Policy{Recovery: flight.Hold})
		l.fall()
		_, err := fd.Do(t.Context(), call, never(t))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		asleep(t, 45*time.Second)
		l.rise(t, 45*time.Second)
		asleep(t, time.Minute)
		for _, e := range fd.Ledger.History(call.Key) {
			t.Logf("%v attempt %d %v %s", e.Kind, e.Attempt, e.Outcome, e.Note)
		}
		require.NotEqual(t, flight.InDoubt, fd.Flight(call.Key).State)
	})
}

// cutOff is a node's way to the ledger: what it proposed arrived, but no answer comes back, and then nothing goes through.
type cutOff struct {
	*flightdtest.Ledger
	mu  sync.Mutex
	cut int // 1: the next command arrives, its answer does not; 2: nothing arrives
}

func (l *cutOff) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	cut := l.cut
	if cut == 1 {
		l.cut = 2
	}
	l.mu.Unlock()
	switch cut {
	case 1:
		_, _ = l.Ledger.Propose(ctx, c)
		return flight.Reply{}, executor.ErrAmbiguous
	case 2:
		return flight.Reply{}, executor.ErrAmbiguous
	}
	return l.Ledger.Propose(ctx, c)
}

// One node is cut off from the leader; its caller goes to another node, and acts. What the first one abandons later is not its.
func TestRepeat_AnotherNodeTellsToAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *cutOff
		b := flightdtest.Open(t, flightdtest.Options{})
		a := b.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l = &cutOff{Ledger: cfg.Ledger.(*flightdtest.Ledger)}
			cfg.Ledger = l
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		req.Session = session(t, b)
		l.mu.Lock()
		l.cut = 1
		l.mu.Unlock()
		first := make(chan error, 1)
		go func() { _, err := a.Desk().Open(t.Context(), req); first <- err }()
		t.Logf("node a: %v", <-first)
		acts, err := b.Desk().Open(t.Context(), req) // the next server
		require.NoError(t, err)
		require.Equal(t, flight.Proceed, acts.Decision)
		for range 3 {
			asleep(t, time.Second)
			_, err := b.Desk().Renew(t.Context(), req.Session, executor.Renewal{Nonces: []flight.Nonce{{1}}})
			require.NoError(t, err)
		}
		l.mu.Lock()
		l.cut = 0
		l.mu.Unlock()
		asleep(t, 5*time.Second)
		for _, e := range b.Ledger.History(req.Key) {
			t.Logf("%v attempt %d %v %s", e.Kind, e.Attempt, e.Outcome, e.Note)
		}
		second, err := b.Desk().Open(t.Context(), openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 2))
		require.Error(t, err, "attempt %d acts beside attempt %d, under hold", second.Flight.AttemptNumber(), acts.Flight.AttemptNumber())
	})
}

// lagging is a node that has not applied what was committed after the attempt was opened.
type lagging struct {
	*flightdtest.Ledger
	f *flight.Flight
}

func (l *lagging) Flight(id flight.ID) (*flight.Flight, error) {
	if l.f != nil {
		return l.f, nil
	}
	return l.Ledger.Flight(id)
}

// A node that lags behind tells nobody to act for an attempt that is closed.
func TestRepeat_OfANodeThatLagsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *cutOff
		lag := new(lagging)
		b := flightdtest.Open(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			lag.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = lag
		}})
		a := b.Restart(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			l = &cutOff{Ledger: cfg.Ledger.(*flightdtest.Ledger)}
			cfg.Ledger = l
		}})
		req := openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 1)
		req.Session = session(t, b)
		l.mu.Lock()
		l.cut = 1
		l.mu.Unlock()
		_, err := a.Desk().Open(t.Context(), req)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		opened := b.Flight(req.Key)
		require.NotNil(t, opened.OpenAttempt())
		l.mu.Lock()
		l.cut = 0
		l.mu.Unlock()
		asleep(t, 3*time.Second)
		require.Nil(t, b.Flight(req.Key).OpenAttempt(), "node a has abandoned it")
		second := proceed(t, a, openOf("1", `{}`, flight.Policy{Recovery: flight.Hold}, 2))
		lag.f = opened
		acts, err := b.Desk().Open(t.Context(), req)
		lag.f = nil
		require.Error(t, err, "%v attempt %d beside attempt %d, under hold", acts.Decision, acts.Flight.AttemptNumber(), second.Flight.AttemptNumber())
	})
}
