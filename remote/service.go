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

// Config is what the service needs. Ledger, Memory, Sessions and Leases have no default.
type Config struct {
	Ledger   executor.Ledger
	Memory   executor.Memory
	Sessions executor.Sessions
	Leases   lease.Service
	Events   executor.Events
	// Checker looks at sessions whose attempts stand in the way of an open; nil: nobody does.
	Checker executor.Checker
	// TTL is that of the node's own session. A claim, an Open or a renewal that is not answered within half of it is given
	// up; 0: lease.DefaultTTL.
	TTL time.Duration
	// OpenLife is how long after its proposal the Open of a caller without not_after may open an attempt; 0: 30 s.
	OpenLife time.Duration
	// MaxOpenPerSession and MaxOpen bound how many flights one session, and all sessions together, hold without a report;
	// 0: 4096 and 16384. Opens beyond that are answered *effect.TooMany.
	MaxOpenPerSession, MaxOpen int
	// Crash is called at the named points of no return, of which the package comment says what is true if the process dies
	// there; nil: nothing happens.
	Crash func(point string)
}

// Service serves callers who perform effects themselves. Its methods may be called at once from many goroutines. Errors are
// those of package effect, *flight.InvalidError, or the context's.
type Service struct {
	cfg    Config
	writer answer.Writer
	settle answer.Settling
	keys   keyQueue
	calls  gate.Gate        // opens, claims that wait for their answer, and work in the background
	asking *horizon.Horizon // bounds requests to etcd and to the ledger

	serving context.Context // ends when Close begins: nobody waits for others any more
	drain   context.CancelCauseFunc
	life    context.Context // of work in the background; ends when Close loses its patience
	kill    context.CancelCauseFunc
}

// New makes a service. Close must be called.
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

// Close refuses new opens, answers those that wait for others, and lets the others end. When ctx ends first, work in the
// background is given up: sessions that nobody ended expire. Close returns at most half a TTL later.
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

// background runs f for at most one OpenLife; where the service is closed, before it returns. If the process dies first, the
// session that f was to end expires.
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

// propose asks the ledger until the answer is known, or ctx ends. Repeating a command is harmless: key and nonce, or the
// token, name what it means. An error that is executor.ErrAmbiguous says that it may have been applied.
func (s *Service) propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	unknown := error(nil)
	for wait := retryPause; ; wait = min(2*wait, recheck) {
		reply, err := s.cfg.Ledger.Propose(ctx, c)
		switch {
		case errors.Is(err, executor.ErrAmbiguous):
			if unknown = err; clock.Sleep(ctx, clock.Jitter(wait)) {
				continue
			}
		case err != nil && unknown != nil: // this one was not taken; an earlier one may have been
			err = fmt.Errorf("%w; then: %w", unknown, err)
		}
		s.cfg.Events.Note(c.Target(), reply.Events)
		return reply, err
	}
}

// withdraw ends a one-shot session that was not needed after all. That the ledger answered Busy to its Open proves nothing: a
// copy may be on its way. Only after Withdraw was accepted nothing opens under the session any more.
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

// endSession ends a one-shot session. Where etcd does not answer, the session expires.
func (s *Service) endSession(ctx context.Context, id flight.SessionID) {
	for s.cfg.Leases.EndSession(ctx, id) != nil && clock.Sleep(ctx, clock.Jitter(recheck)) {
	}
}

// release gives up what etcd has of an attempt that has ended: its claim, and its session where that was made for this attempt
// alone, whichever node made them.
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
