package executor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/lease"
)

// Sweeper ends attempts whose session has ended in etcd, and attempts and callbacks that are overdue. It also raises
// the counter of etcd's guard key, and deletes orphan claims. Rounds run on the node that leads the ledger; Check runs
// on every node.
type Sweeper struct {
	cfg     SweeperConfig
	work    gate.Gate                        // the watch, and checks that are under way; Run waits for them
	orphans map[flight.Key]lease.ListedClaim // claims without an attempt in the previous search; used by Run's goroutine only

	mu          sync.Mutex                     // guards checked
	lastChecked map[flight.SessionID]time.Time // when Check last checked a session
}

// SweeperConfig has the ports of a sweeper. Ledger, Reader, Sessions and Leases have no default.
type SweeperConfig struct {
	Ledger   Ledger
	Reader   Reader
	Sessions Sessions
	Leases   lease.Service
	Events   Events
	IsLeader func() bool   // reports whether this node leads the ledger; nil: always
	Interval time.Duration // the pause between two rounds; 0: 2 s
	// MayEnd returns those of these sessions, which have ended in etcd, whose attempts may be ended now. A session that is left
	// out is asked for again in the next round: its holder may be another node that lives. nil: all.
	MayEnd func(context.Context, []flight.Session) []flight.Session
}

const (
	// guardInterval is how often the counter of etcd's guard key is raised. After a restore of an etcd backup that is
	// younger than this interval, the counter does not show the restore.
	guardInterval = 10 * time.Second
	// orphanInterval is how often the sweeper searches for claims without an attempt. A claim that two consecutive
	// searches find is deleted.
	orphanInterval = time.Minute
	// roundTimeout bounds one round.
	roundTimeout = 15 * time.Second
	// checkInterval is the shortest time between two checks of the same session.
	checkInterval = time.Second
	// maxOverdue is how many overdue flights one round wakes.
	maxOverdue = 1024
	// maxLastChecked bounds the number of sessions whose last check is remembered.
	maxLastChecked = 1024
)

// NewSweeper creates a sweeper. Run starts its rounds.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	cfg.Interval = cmp.Or(cfg.Interval, 2*time.Second)
	if cfg.IsLeader == nil {
		cfg.IsLeader = func() bool { return true }
	}
	return &Sweeper{cfg: cfg, lastChecked: make(map[flight.SessionID]time.Time), orphans: make(map[flight.Key]lease.ListedClaim)}
}

// Run runs the rounds until ctx ends, then waits for the watch and for checks. The watch on sessions starts a round
// early; the timer starts one even if the watch has missed an event.
func (s *Sweeper) Run(ctx context.Context) {
	defer s.work.Close()
	wake := make(chan struct{}, 1)
	s.work.Go(func() { s.watchSessions(ctx, wake) })
	sweep, guard, orphans := time.NewTimer(0), time.NewTimer(0), time.NewTimer(orphanInterval)
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-wake:
			err = s.runIfLeader(ctx, s.Sweep)
		case <-sweep.C:
			err = s.runIfLeader(ctx, s.Sweep)
			sweep.Reset(s.cfg.Interval)
		case <-guard.C:
			err = s.runIfLeader(ctx, s.raiseGuardCounter)
			guard.Reset(guardInterval)
		case <-orphans.C:
			err = s.runIfLeader(ctx, s.removeOrphans)
			orphans.Reset(orphanInterval)
		}
		if err != nil && ctx.Err() == nil && s.cfg.Events.SweepFailed != nil {
			s.cfg.Events.SweepFailed(err)
		}
	}
}

// runIfLeader runs one round if this node leads the ledger. The round is bounded: a request on a broken connection may
// never be answered, and the next round must not wait for it.
func (s *Sweeper) runIfLeader(ctx context.Context, round func(context.Context) error) error {
	if !s.cfg.IsLeader() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	return round(ctx)
}

// watchSessions sends on wake whenever a session ends. It starts the watch again when it breaks, until ctx ends.
func (s *Sweeper) watchSessions(ctx context.Context, wake chan<- struct{}) {
	for ctx.Err() == nil {
		_ = s.cfg.Leases.Watch(ctx, func(flight.SessionID) {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		clock.Sleep(ctx, s.cfg.Interval)
	}
}

// Sweep runs one round: it ends overdue attempts, and the attempts of ended sessions. It skips a session that this
// process uses for a running effect, even if the session has ended in etcd: the holder is this process, which lives.
func (s *Sweeper) Sweep(ctx context.Context) error {
	err := s.wakeOverdue(ctx)
	holders := s.cfg.Sessions.Holders()
	if len(holders) == 0 {
		return err
	}
	living, readErr := s.cfg.Leases.Living(ctx)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	return errors.Join(err, s.endSessions(ctx, holders, living))
}

// endSessions ends the attempts of those of the sessions that have ended, and that no process known to this one uses.
func (s *Sweeper) endSessions(ctx context.Context, sessions []flight.Session, living lease.Living) error {
	var ended []flight.Session
	for _, session := range sessions {
		if s.hasEnded(session, living) && !s.cfg.Leases.InUse(session.ID) {
			ended = append(ended, session)
		}
	}
	if len(ended) > 0 && s.cfg.MayEnd != nil {
		ended = s.cfg.MayEnd(ctx, ended)
	}
	var errs []error
	for _, session := range ended {
		errs = append(errs, s.endSession(ctx, session, living))
	}
	return errors.Join(errs...)
}

// hasEnded reports whether a read of etcd proves that a session has ended. A session of an older lease epoch has ended
// when the ledger's hold time for that epoch (Header.EpochHold) is over.
func (s *Sweeper) hasEnded(session flight.Session, living lease.Living) bool {
	if session.Epoch < living.Epoch {
		header := s.cfg.Reader.Header()
		return session.Epoch < header.LeaseEpoch && s.cfg.Reader.Now() >= header.EpochHold
	}
	_, alive := living.Sessions[session.ID]
	return !alive && session.Epoch == living.Epoch && living.Revision >= session.Revision
}

// endSession proposes the end of a session until the session holds no flight. If the process dies in between, the next
// round continues: the ledger's index still has the flights that are left.
func (s *Sweeper) endSession(ctx context.Context, session flight.Session, living lease.Living) error {
	command := &flight.EndSession{Session: session, ReadRevision: living.Revision, Epoch: living.Epoch, Counter: living.Counter,
		StoreEpoch: s.cfg.Reader.Header().StoreEpoch}
	for {
		reply, err := s.cfg.Ledger.Propose(ctx, command)
		if err != nil {
			return err
		}
		for i := range reply.PerFlight {
			f := reply.PerFlight[i].Flight
			s.cfg.Events.Publish(f.Key, reply.PerFlight[i].Events)
			if a := f.Newest(); a != nil && a.Lost && s.cfg.Events.Recovered != nil {
				s.cfg.Events.Recovered(f.Key, a.Number, f.State)
			}
		}
		if reply.Decision != flight.DecisionAccepted || !reply.More { // rejected: the epoch has changed; the next round reads again
			return nil
		}
	}
}

// wakeOverdue ends attempts, callbacks and sleeps of sagas that are overdue by the ledger's clock. All are proposed at once, so that they
// share a few writes.
func (s *Sweeper) wakeOverdue(ctx context.Context) error {
	overdue := s.cfg.Reader.Overdue(maxOverdue)
	errs := make([]error, len(overdue))
	var all sync.WaitGroup
	for i, id := range overdue {
		all.Go(func() {
			f, err := s.cfg.Ledger.Flight(id)
			if err != nil || f == nil {
				errs[i] = err
				return
			}
			reply, err := s.cfg.Ledger.Propose(ctx, &flight.WakeUp{Key: f.Key, Generation: f.Generation})
			errs[i] = err
			s.cfg.Events.Publish(f.Key, reply.Events)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Check implements Checker. It checks one session in the background, at most once a second, and ends the session's
// attempts if etcd proves that the session has ended. After Run has ended it does nothing.
func (s *Sweeper) Check(session flight.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.lastChecked[session.ID]) < checkInterval || !s.work.Enter() {
		return
	}
	if len(s.lastChecked) >= maxLastChecked {
		maps.DeleteFunc(s.lastChecked, func(_ flight.SessionID, at time.Time) bool { return time.Since(at) >= checkInterval })
	}
	s.lastChecked[session.ID] = time.Now()
	go func() {
		defer s.work.Leave()
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Interval)
		defer cancel()
		living, err := s.cfg.Leases.Living(ctx, session.ID)
		if err == nil {
			err = s.endSessions(ctx, []flight.Session{session}, living)
		}
		if err != nil && s.cfg.Events.SweepFailed != nil {
			s.cfg.Events.SweepFailed(err)
		}
	}()
}

// raiseGuardCounter raises the counter of etcd's guard key, then records the counter in the ledger. If the process dies
// in between, the counter in etcd is ahead of the ledger, which proves nothing and harms nothing.
func (s *Sweeper) raiseGuardCounter(ctx context.Context) error {
	epoch, counter, err := s.cfg.Leases.RaiseGuard(ctx)
	if err != nil {
		return err
	}
	_, err = s.cfg.Ledger.Propose(ctx, &flight.RecordGuard{Epoch: epoch, Counter: counter})
	return err
}

// removeOrphans deletes claims that have no open attempt and had none a minute ago. A claim proves nothing: if one in
// use were deleted, duplicates would merely propose to the ledger.
func (s *Sweeper) removeOrphans(ctx context.Context) error {
	claims, err := s.cfg.Leases.Claims(ctx)
	if err != nil {
		return err
	}
	orphans, remove := make(map[flight.Key]lease.ListedClaim), []lease.ListedClaim(nil)
	for _, c := range claims {
		f, err := s.cfg.Ledger.Flight(c.Key.FlightID())
		if a := f.OpenAttempt(); err != nil || a != nil && a.Nonce == c.Nonce && f.State == flight.StateRunning {
			continue
		}
		if s.orphans[c.Key] == c {
			remove = append(remove, c)
		}
		orphans[c.Key] = c
	}
	s.orphans = orphans
	return s.cfg.Leases.RemoveClaims(ctx, remove)
}
