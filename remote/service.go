package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/deadline"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/lease"
)

// Config has the ports and the bounds of the service. Ledger, Reader, Sessions and Leases have no default.
type Config struct {
	Ledger   executor.Ledger
	Reader   executor.Reader
	Sessions executor.Sessions
	Leases   lease.Service
	Events   executor.Events
	// Checker checks the sessions whose attempts block an open; nil: no checks.
	Checker executor.Checker
	// TTL is the TTL of the node's own session; 0: lease.DefaultTTL. A claim, an Open or a renewal fails when it is not
	// answered within half of the TTL.
	TTL time.Duration
	// OpenLife is how long after its proposal an Open may open an attempt if its caller sent no not_after; 0: 30 s.
	OpenLife time.Duration
	// MaxOpenPerSession and MaxOpen bound how many flights one session, and all sessions together, hold without a
	// report; 0: 4096 and 16384. Further opens get *effect.TooMany.
	MaxOpenPerSession, MaxOpen int
	// Limits bounds what each namespace holds and how many opens wait; nil: no bounds.
	Limits Limits
	// Crash is called at the points of no return, by the names of the tables in the package comment; nil: no call.
	Crash func(point string)
}

// Limits has the bounds of the namespaces. Its methods are called concurrently.
type Limits interface {
	// AllowAttempt returns *effect.TooMany or *effect.QuotaExceeded if the namespace of the key may not open another
	// attempt. newKey says that the key has no stored flight.
	AllowAttempt(key flight.Key, newKey bool) error
	// AllowWork counts a claimed job. It returns an error if the namespace has used up its rate.
	AllowWork(namespace string) error
	// StartWait reserves the place of a request of the namespace that waits, and is an open; end frees the place. If ok
	// is false, there is no place, and the open is answered as if its wait had ended.
	StartWait(namespace string, open bool) (end func(), ok bool)
}

// Service serves remote callers. Its methods may be called concurrently. Errors are those of package effect,
// *flight.InvalidError, or the context's.
type Service struct {
	cfg             Config
	writer          answer.Builder
	lookUpDelay     answer.VerifyDelays
	keyLocks        keyedMutex
	calls           gate.Gate        // opens, unanswered claims, and background work; Close waits for them
	requestDeadline *deadline.Shared // bounds requests to etcd and to the ledger

	drainCtx context.Context // ends when Close begins, and with it every wait for another holder
	drain    context.CancelCauseFunc
	baseCtx  context.Context // of background work; ends when Close has timed out
	kill     context.CancelCauseFunc
}

// New creates a service. Close must be called. term ends with the term in which the node leads the ledger: no command of the service is proposed
// again in a later one, when what another leader has answered meanwhile, such as a pause, would not hold for it.
func New(term context.Context, cfg Config) (*Service, error) {
	if cfg.Ledger == nil || cfg.Reader == nil || cfg.Sessions == nil || cfg.Leases == nil {
		return nil, errors.New("remote: Config needs Ledger, Reader, Sessions and Leases")
	}
	cfg.TTL = cmp.Or(cfg.TTL, lease.DefaultTTL)
	cfg.OpenLife = cmp.Or(cfg.OpenLife, flight.MaxOpenLife/2)
	cfg.MaxOpenPerSession = cmp.Or(cfg.MaxOpenPerSession, 4096)
	cfg.MaxOpen = cmp.Or(cfg.MaxOpen, 16384)
	if cfg.OpenLife > flight.MaxOpenLife {
		return nil, fmt.Errorf("remote: OpenLife %v is longer than the ledger allows (%v)", cfg.OpenLife, flight.MaxOpenLife)
	}
	if cfg.Crash == nil {
		cfg.Crash = func(string) {}
	}
	s := &Service{cfg: cfg, writer: answer.Builder{Reader: cfg.Reader}, requestDeadline: deadline.New(term, cfg.TTL*2/5)}
	s.baseCtx, s.kill = context.WithCancelCause(context.Background())
	s.drainCtx, s.drain = context.WithCancelCause(s.baseCtx)
	return s, nil
}

// Close rejects new opens, answers the opens that wait for another holder, and waits for the others. When ctx ends
// first, background work is cancelled: one-shot sessions that were to be ended expire. Close returns at most half a TTL
// later.
func (s *Service) Close(ctx context.Context) error {
	s.drain(effect.ErrClosed)
	done := s.calls.BeginClose()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.kill(effect.ErrClosed)
	<-done
	s.requestDeadline.Close()
	return nil
}

// runInBackground runs f for at most one OpenLife on a goroutine that Close waits for. After Close it runs f before it
// returns. If the process dies first, the session that f was to end expires.
func (s *Service) runInBackground(f func(ctx context.Context)) {
	run := func() {
		ctx, cancel := context.WithTimeout(s.baseCtx, s.cfg.OpenLife)
		defer cancel()
		f(ctx)
	}
	if !s.calls.Go(run) {
		run()
	}
}

// propose is executor.ProposeUntilKnown, and publishes the events of the reply.
func (s *Service) propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	reply, _, err := executor.ProposeUntilKnown(ctx, s.cfg.Ledger, c)
	s.cfg.Events.Publish(c.Target(), reply.Events)
	return reply, err
}

// withdrawSession ends a one-shot session that holds nothing. The reply Busy to its Open is no proof, because a copy of
// the Open may still arrive. Only after WithdrawSession was accepted does nothing open under the session.
func (s *Service) withdrawSession(ctx context.Context, key flight.Key, id flight.SessionID) {
	for first := true; first || clock.Sleep(ctx, clock.Jitter(retryPause)); first = false {
		reply, err := s.propose(ctx, &flight.WithdrawSession{Key: key, Session: id, StoreEpoch: s.cfg.Reader.Header().StoreEpoch})
		if err == nil {
			if reply.Decision == flight.DecisionAccepted {
				s.endSession(ctx, id)
			}
			return
		}
	}
}

// endSession ends a one-shot session in etcd. If etcd does not answer until ctx ends, the session expires.
func (s *Service) endSession(ctx context.Context, id flight.SessionID) {
	for s.cfg.Leases.EndSession(ctx, id) != nil && clock.Sleep(ctx, clock.Jitter(retryPause)) {
	}
}

// retryPause is the pause before a background request is sent again, and before a waiting caller reads again: the cause
// of its wait may end without a change of the flight.
const retryPause = time.Second

// releaseEnded removes from etcd the keys of an attempt that has ended or waits for its callback, whichever node created them:
// the claim, and the session if it is a one-shot session.
func (s *Service) releaseEnded(key flight.Key, f *flight.Flight, match func(*flight.Attempt) bool) {
	if f == nil {
		return
	}
	for _, a := range f.Attempts {
		if !match(&a) || a.IsOpen() && f.State != flight.StateWaiting {
			continue
		}
		s.cfg.Crash(crashpoint.BeforeRelease)
		s.cfg.Leases.ReleaseClaim(key, a.Session.ID, a.Nonce)
		if a.Session.OneShot {
			s.runInBackground(func(ctx context.Context) { s.endSession(ctx, a.Session.ID) })
		}
	}
}
