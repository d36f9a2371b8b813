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
	"github.com/flightd/flightd/lease"
)

// Sweeper ends what nobody else ends: attempts whose session has ended in etcd, and attempts and callbacks whose time is
// over. It also raises the counter of etcd's guard key, and deletes claims that nobody uses. The node that leads the ledger
// does so unasked; every node does it for a session that stands in a caller's way.
type Sweeper struct {
	cfg  SweeperConfig
	work sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	checked map[flight.SessionID]time.Time // when a session was looked at last for a caller
	orphans map[flight.Key]lease.Held      // claims without an attempt, as the last look found them
}

// SweeperConfig is what a sweeper needs. Ledger, Memory, Sessions and Leases have no default.
type SweeperConfig struct {
	Ledger   Ledger
	Memory   Memory
	Sessions Sessions
	Leases   lease.Service
	Events   Events
	Leads    func() bool   // whether this node leads the ledger; nil: it does
	Every    time.Duration // between two rounds; 0: 2 s
}

const (
	// guardEvery is how often the counter of etcd's guard key is raised: a backup of etcd that is younger than this is not
	// noticed to be one.
	guardEvery = 10 * time.Second
	// orphansEvery is how often claims without an attempt are looked for. One is deleted when two looks in a row found it.
	orphansEvery = time.Minute
	// roundTime bounds one round.
	roundTime = 15 * time.Second
	// checkEvery is how often at most one session is looked at for the callers in whose way it stands.
	checkEvery = time.Second
	// maxChecked is how many sessions are remembered as looked at.
	maxChecked = 1024
)

// NewSweeper makes a sweeper. Run sets it to work.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	cfg.Every = cmp.Or(cfg.Every, 2*time.Second)
	if cfg.Leads == nil {
		cfg.Leads = func() bool { return true }
	}
	return &Sweeper{cfg: cfg, checked: make(map[flight.SessionID]time.Time), orphans: make(map[flight.Key]lease.Held)}
}

// Run works until ctx ends. A watch on sessions makes it quick; the timer makes it sure.
func (s *Sweeper) Run(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.work.Wait()
	}()
	hint := make(chan struct{}, 1)
	s.work.Go(func() { s.watch(ctx, hint) })
	sweep, guard, orphans := time.NewTimer(0), time.NewTimer(0), time.NewTimer(orphansEvery)
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-hint:
			err = s.lead(ctx, s.Sweep)
		case <-sweep.C:
			err = s.lead(ctx, s.Sweep)
			sweep.Reset(s.cfg.Every)
		case <-guard.C:
			err = s.lead(ctx, s.raiseGuard)
			guard.Reset(guardEvery)
		case <-orphans.C:
			err = s.lead(ctx, s.removeOrphans)
			orphans.Reset(orphansEvery)
		}
		if err != nil && ctx.Err() == nil && s.cfg.Events.SweepFailed != nil {
			s.cfg.Events.SweepFailed(err)
		}
	}
}

// lead does one round where this node leads. A round is bounded: a request on a connection that was cut may never be
// answered, and the next round must not wait for it.
func (s *Sweeper) lead(ctx context.Context, round func(context.Context) error) error {
	if !s.cfg.Leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	return round(ctx)
}

// watch turns ended sessions into hints, and starts over when the watch breaks.
func (s *Sweeper) watch(ctx context.Context, hint chan<- struct{}) {
	for ctx.Err() == nil {
		_ = s.cfg.Leases.Watch(ctx, func(flight.SessionID) {
			select {
			case hint <- struct{}{}:
			default:
			}
		})
		clock.Sleep(ctx, s.cfg.Every)
	}
}

// Sweep is one round: it ends what is overdue, and the attempts of sessions that have ended. A session whose effects are in the
// air in this process is left alone, whatever etcd says of it: this process knows that its holder lives.
func (s *Sweeper) Sweep(ctx context.Context) error {
	err := s.wakeOverdue(ctx)
	holders := s.cfg.Sessions.Holders()
	if len(holders) == 0 {
		return err
	}
	living, unread := s.cfg.Leases.Living(ctx)
	if unread != nil {
		return errors.Join(err, unread)
	}
	errs := []error{err}
	for _, session := range holders {
		if s.hasEnded(session, living) && !s.cfg.Leases.InUse(session.ID) {
			errs = append(errs, s.end(ctx, session, living))
		}
	}
	return errors.Join(errs...)
}

// hasEnded reports whether a read of etcd proves that a session has ended. A session of an older lease epoch needs no
// proof but the end of that epoch's hold.
func (s *Sweeper) hasEnded(session flight.Session, living lease.Living) bool {
	if session.Epoch < living.Epoch {
		header := s.cfg.Memory.Header()
		return session.Epoch < header.LeaseEpoch && s.cfg.Memory.Now() >= header.EpochHold
	}
	_, lives := living.Sessions[session.ID]
	return !lives && session.Epoch == living.Epoch && living.Revision >= session.Revision
}

// end proposes the end of a session until none of its flights is left. If the process dies in between, the next round goes
// on: what is left stays in the ledger's index.
func (s *Sweeper) end(ctx context.Context, session flight.Session, living lease.Living) error {
	command := &flight.Ended{Session: session, ReadRevision: living.Revision, Epoch: living.Epoch, Counter: living.Counter,
		StoreEpoch: s.cfg.Memory.Header().StoreEpoch}
	for {
		reply, err := s.cfg.Ledger.Propose(ctx, command)
		if err != nil {
			return err
		}
		for i := range reply.Each {
			f := reply.Each[i].Flight
			s.cfg.Events.Note(f.Key, reply.Each[i].Events)
			if a := f.Newest(); a != nil && a.Lost && s.cfg.Events.Recovered != nil {
				s.cfg.Events.Recovered(f.Key, a.Number, f.State)
			}
		}
		if reply.Decision != flight.Accepted || !reply.More { // refused: it is of another epoch by now, and the next round looks again
			return nil
		}
	}
}

// wakeOverdue ends attempts and callbacks whose time is over by the ledger's clock.
func (s *Sweeper) wakeOverdue(ctx context.Context) error {
	var errs []error
	now := s.cfg.Memory.Now()
	for f, err := range s.cfg.Memory.Live() {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if !isOverdue(f, now) {
			continue
		}
		reply, err := s.cfg.Ledger.Propose(ctx, &flight.WakeUp{Key: f.Key, Generation: f.Generation})
		errs = append(errs, err)
		s.cfg.Events.Note(f.Key, reply.Events)
	}
	return errors.Join(errs...)
}

// isOverdue reports whether the time of an open attempt, or of the callback that it waits for, is over.
func isOverdue(f *flight.Flight, now flight.Time) bool {
	a := f.OpenAttempt()
	if a == nil {
		return false
	}
	until := a.Deadline(f.Policy)
	if f.State == flight.Waiting {
		until = f.Wake.At
	}
	return until > 0 && now >= until
}

// Check implements Checker: it has one session looked at, at most once a second, and its attempts ended where it has ended.
func (s *Sweeper) Check(session flight.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || time.Since(s.checked[session.ID]) < checkEvery {
		return
	}
	if len(s.checked) >= maxChecked {
		maps.DeleteFunc(s.checked, func(_ flight.SessionID, at time.Time) bool { return time.Since(at) >= checkEvery })
	}
	s.checked[session.ID] = time.Now()
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Every)
		defer cancel()
		living, err := s.cfg.Leases.Living(ctx, session.ID)
		if err == nil && s.hasEnded(session, living) && !s.cfg.Leases.InUse(session.ID) {
			err = s.end(ctx, session, living)
		}
		if err != nil && s.cfg.Events.SweepFailed != nil {
			s.cfg.Events.SweepFailed(err)
		}
	})
}

// raiseGuard raises the counter of etcd's guard key, and notes it in the ledger. If the process dies in between, the
// counter in etcd is ahead, which proves nothing and harms nothing.
func (s *Sweeper) raiseGuard(ctx context.Context) error {
	epoch, counter, err := s.cfg.Leases.RaiseGuard(ctx)
	if err != nil {
		return err
	}
	_, err = s.cfg.Ledger.Propose(ctx, &flight.RecordGuard{Epoch: epoch, Counter: counter})
	return err
}

// removeOrphans deletes claims under which nothing is open and nothing was a minute ago. A claim proves nothing, so that
// deleting one in use would only let duplicates ask the ledger.
func (s *Sweeper) removeOrphans(ctx context.Context) error {
	claims, err := s.cfg.Leases.Claims(ctx)
	if err != nil {
		return err
	}
	found, remove := make(map[flight.Key]lease.Held), []lease.Held(nil)
	for _, c := range claims {
		f, err := s.cfg.Ledger.Flight(c.Key.FlightID())
		if a := f.OpenAttempt(); err != nil || a != nil && a.Nonce == c.Nonce {
			continue
		}
		if s.orphans[c.Key] == c {
			remove = append(remove, c)
		}
		found[c.Key] = c
	}
	s.orphans = found
	return s.cfg.Leases.RemoveClaims(ctx, remove)
}
