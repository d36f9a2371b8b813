package executor

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

const (
	// rescuers is how many flights of dead holders are taken over at once: their claims and commands share writes.
	rescuers = 32
)

// Run notices dead holders though nobody asks, until ctx ends: it compares open attempts with the claims that are
// held, claims what nobody holds, and lets the rules decide. The watch makes it quick; the timer makes it sure.
func (ex *Executor) Run(ctx context.Context) {
	hint := make(chan struct{}, 1)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		ex.watch(ctx, hint)
	}()
	defer func() { <-watching }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hint:
		case <-timer.C:
		}
		if err := ex.Sweep(ctx); err != nil && ctx.Err() == nil && ex.cfg.Events.SweepFailed != nil {
			ex.cfg.Events.SweepFailed(err)
		}
		timer.Reset(ex.cfg.SweepEvery)
	}
}

// watch turns ended sessions into hints, and starts over when the watch breaks.
func (ex *Executor) watch(ctx context.Context, hint chan<- struct{}) {
	for ctx.Err() == nil {
		_ = ex.cfg.Leases.Watch(ctx, func(flight.Key) {
			select {
			case hint <- struct{}{}:
			default:
			}
		})
		rest(ctx, ex.cfg.SweepEvery)
	}
}

// Sweep is one round of the sweeper. Which attempts are open is read before who holds what: a claim that is missing
// then was gone while its attempt was open, or the attempt has ended since, which the ledger will see.
func (ex *Executor) Sweep(ctx context.Context) error {
	ex.desk.guests.tidy(time.Now())
	open, err := ex.openAttempts()
	if err != nil || len(open) == 0 {
		return err
	}
	claims, err := ex.cfg.Leases.Claims(ctx)
	if err != nil {
		return err
	}
	ex.overdue.keep(open)
	var hung []lease.Held
	for _, held := range claims {
		if f := open[held.Key]; f != nil && f.Newest().Claim.Compare(held.Claim) == 0 {
			delete(open, held.Key)
			if ex.overdue.is(f, ex.cfg.HungAfter) {
				hung = append(hung, held)
			}
		}
	}
	// Whoever waits for a dead holder in this process takes over by itself.
	maps.DeleteFunc(open, func(_ flight.Key, f *flight.Flight) bool { return ex.trips.underway(f.ID) })
	return errors.Join(ex.evict(ctx, hung), ex.rescueAll(ctx, open))
}

// openAttempts are the flights in the air, but for those of this process: it knows of them itself.
func (ex *Executor) openAttempts() (map[flight.Key]*flight.Flight, error) {
	open := make(map[flight.Key]*flight.Flight)
	for f, err := range ex.cfg.Memory.Live() {
		if err != nil {
			return nil, err
		}
		if f.State == flight.Running && f.OpenAttempt() != nil && !ex.trips.inTheAir(f.ID) {
			open[f.Key] = f
		}
	}
	return open, nil
}

// rescueAll takes over what dead holders left, many at once.
func (ex *Executor) rescueAll(ctx context.Context, orphans map[flight.Key]*flight.Flight) error {
	var (
		mu    sync.Mutex
		errs  []error
		group sync.WaitGroup
		slots = make(chan struct{}, rescuers)
	)
	for key, f := range orphans {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := ex.rescue(ctx, key, f); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// rescue takes over a flight whose holder is gone. The claim proves it: the ledger compares it with the attempt's. If
// the process dies in between, the claim expires, and the next sweep starts over.
func (ex *Executor) rescue(ctx context.Context, key flight.Key, f *flight.Flight) error {
	right, err := ex.session.TryAcquire(ctx, key)
	if errors.Is(err, lease.ErrHeld) {
		return nil // somebody claimed it meanwhile
	}
	if err != nil {
		return err
	}
	defer right.Release()
	reply, err := ex.cfg.Ledger.Propose(ctx, &flight.Recover{Key: key, Claim: right.Claim()})
	if err != nil {
		return err
	}
	if reply.Changed {
		ex.settle.observe(reply.Flight)
		ex.desk.dropped(f)
		ex.cfg.Events.Note(key, reply.Events)
		if ex.cfg.Events.Recovered != nil {
			ex.cfg.Events.Recovered(key, f.AttemptNumber(), reply.Decision)
		}
	}
	return nil
}

// evict takes the claims of holders that hang: their sessions are healthy, but the attempts' time was over long ago.
// The next sweep finds the attempts without a holder. What such a holder reports after all counts as long as nothing
// newer was opened.
func (ex *Executor) evict(ctx context.Context, hung []lease.Held) error {
	remover, ok := ex.cfg.Leases.(lease.Remover)
	if !ok {
		return nil
	}
	var errs []error
	for _, held := range hung {
		errs = append(errs, remover.Remove(ctx, held.Key, held.Claim))
	}
	return errors.Join(errs...)
}

// overdue measures, by this process's own monotonic clock, for how long remote callers have had their attempts open.
type overdue struct {
	mu    sync.Mutex
	since map[flight.ID]firstSeen
}

type firstSeen struct {
	attempt uint32
	at      time.Time
}

// keep forgets all flights but those open.
func (o *overdue) keep(open map[flight.Key]*flight.Flight) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.since
	o.since = make(map[flight.ID]firstSeen, len(open))
	for _, f := range open {
		if f.Policy.AttemptTimeout <= 0 {
			continue // it may take as long as it likes
		}
		seen, known := before[f.ID]
		if !known || seen.attempt != f.AttemptNumber() {
			seen = firstSeen{attempt: f.AttemptNumber(), at: time.Now()}
		}
		o.since[f.ID] = seen
	}
}

// is reports whether the flight's attempt should have ended by now, with so much grace.
func (o *overdue) is(f *flight.Flight, grace time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, known := o.since[f.ID]
	return known && time.Since(seen.at) > f.Policy.AttemptTimeout+grace
}
