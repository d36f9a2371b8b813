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
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/internal/horizon"
	"github.com/flightd/flightd/lease"
)

// Config has the ports and the bounds of the service. Ledger, Reader, Sessions and Leases have no default.
type Config struct {
	Ledger   executor.Ledger
	Memory   executor.Memory
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
	// Crash is called at the points of no return, by the names of the tables in the package comment; nil: no call.
	Crash func(point string)
}

// Service serves remote callers. Its methods may be called concurrently. Errors are those of package effect,
// *flight.InvalidError, or the context's.
type Service struct {
	cfg    Config
	writer answer.Writer
	settle answer.Settling
	keys   keyQueue
	calls  gate.Gate        // opens, unanswered claims, and background work; Close waits for them
	asking *horizon.Horizon // bounds requests to etcd and to the ledger

	serving context.Context // ends when Close begins, and with it every wait for another holder
	drain   context.CancelCauseFunc
	life    context.Context // of background work; ends when Close has timed out
	kill    context.CancelCauseFunc
}

// New creates a service. Close must be called.
func New(cfg Config) (*Service, error) {
	if cfg.Ledger == nil || cfg.Memory == nil || cfg.Sessions == nil || cfg.Leases == nil {
		return nil, errors.New("remote: Config needs Ledger, Memory, Sessions and Leases")
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
	s := &Service{cfg: cfg, writer: answer.Writer{Memory: cfg.Memory}, asking: horizon.New(cfg.TTL * 2 / 5)}
	s.life, s.kill = context.WithCancelCause(context.Background())
	s.serving, s.drain = context.WithCancelCause(s.life)
	return s, nil
}

// Close rejects new opens, answers the opens that wait for another holder, and waits for the others. When ctx ends
// first, background work is cancelled: one-shot sessions that were to be ended expire. Close returns at most half a TTL
// later.
func (s *Service) Close(ctx context.Context) error {
	s.drain(effect.ErrClosed)
	done := s.calls.Shut()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.kill(effect.ErrClosed)
	<-done
	s.asking.Close()
	return nil
}

// runInBackground runs f for at most one OpenLife on a goroutine that Close waits for. After Close it runs f before it
// returns. If the process dies first, the session that f was to end expires.
func (s *Service) background(f func(ctx context.Context)) {
	run := func() {
		ctx, cancel := context.WithTimeout(s.life, s.cfg.OpenLife)
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
	s.cfg.Events.Note(c.Target(), reply.Events)
	return reply, err
}

// withdrawSession ends a one-shot session that holds nothing. The reply Busy to its Open is no proof, because a copy of
// the Open may still arrive. Only after WithdrawSession was accepted does nothing open under the session.
func (s *Service) withdraw(ctx context.Context, key flight.Key, id flight.SessionID) {
	for first := true; first || clock.Sleep(ctx, clock.Jitter(recheck)); first = false {
		reply, err := s.propose(ctx, &flight.Withdraw{Key: key, Session: id, StoreEpoch: s.cfg.Memory.Header().StoreEpoch})
		if err == nil {
			if reply.Decision == flight.Accepted {
				s.endSession(ctx, id)
			}
			return
		}
	}
}

// endSession ends a one-shot session in etcd. If etcd does not answer until ctx ends, the session expires.
func (s *Service) endSession(ctx context.Context, id flight.SessionID) {
	for s.cfg.Leases.EndSession(ctx, id) != nil && clock.Sleep(ctx, clock.Jitter(recheck)) {
	}
}

// retryPause is the pause before a background request is sent again, and before a waiting caller reads again: the cause
// of its wait may end without a change of the flight.
const recheck = time.Second

// releaseEnded removes an ended attempt's keys from etcd, whichever node created them: the claim, and the session if it
// is a one-shot session.
func (s *Service) release(key flight.Key, f *flight.Flight, is func(*flight.Attempt) bool) {
	if f == nil {
		return
	}
	for _, a := range f.Attempts {
		if !is(&a) || a.Open() {
			continue
		}
		s.cfg.Crash(crashpoint.BeforeRelease)
		s.cfg.Leases.ReleaseClaim(key, a.Session.ID, a.Nonce)
		if a.Session.OneShot {
			s.background(func(ctx context.Context) { s.endSession(ctx, a.Session.ID) })
		}
	}
}
