package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// The pauses of a caller that waits for somebody else's claim: it is woken by the ledger, and looks by itself in case
// that the claim went without a word.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = time.Second
)

// errPatience says that the wait for somebody else is over.
var errPatience = errors.New("executor: somebody else has the key, and the wait is over")

// claimFor gives the trip its right to fly, or the flight where there is nothing left to fly for its callers.
func (ex *Executor) claimFor(t *trip) (settled *flight.Flight, err error) {
	ex.letGo(t)
	t.flying.Store(false)
	ex.cfg.Crash(beforeClaim)
	t.right, settled, err = ex.claim(&t.interest, &t.interest, waiter{session: ex.session, key: t.call.Key, id: t.id, final: t.final})
	if err == nil {
		ex.cfg.Crash(afterClaim)
	}
	return settled, err
}

// final reports whether nothing is left to fly for the trip's callers.
func (t *trip) final(f *flight.Flight) bool { return isSettled(f) || differs(f, &t.call.Submission) }

// waiter is who wants a claim.
type waiter struct {
	session lease.Session
	key     flight.Key
	id      flight.ID
	final   func(*flight.Flight) bool // nothing is left to claim for
	held    func(*lease.HeldError)    // told who has the key; nil: nobody
	waits   func()                    // called while it waits, every so often
	every   time.Duration
}

// claim gets the right to fly, or the flight once it is final for the asker. It waits for somebody else's claim until
// patience ends, then answers errPatience; ctx bounds all of it.
func (ex *Executor) claim(ctx, patience context.Context, w waiter) (lease.Lease, *flight.Flight, error) {
	poll, wanted := firstPoll, ex.wanted()
	for {
		var right lease.Lease
		err := lease.ErrHeld // by this process itself: a newer claim would turn its effect in the air into a doubt
		if !ex.trips.inTheAir(w.id) {
			right, err = ex.tryClaim(ctx, w)
		}
		if err == nil {
			ex.tellClaimed(w.key, wanted)
			return right, nil, nil
		}
		if !errors.Is(err, lease.ErrHeld) && !ex.worthWaiting(w.id, err) {
			return nil, nil, err
		}
		if by := new(lease.HeldError); w.held != nil && errors.As(err, &by) {
			w.held(by)
		}
		pause := jitter(poll)
		if w.waits != nil {
			w.waits()
			pause = min(pause, w.every)
		}
		f, changed, err := ex.await(patience, w.id, w.final, pause)
		switch {
		case err != nil:
			return nil, nil, err
		case w.final(f):
			return nil, f, nil
		case patience.Err() != nil:
			return nil, f, errPatience
		}
		if poll = min(2*poll, lastPoll); changed {
			poll = firstPoll
		}
	}
}

// wanted is now, where somebody wants to know how long claims take.
func (ex *Executor) wanted() (at time.Time) {
	if ex.cfg.Events.Claimed != nil {
		at = time.Now()
	}
	return at
}

func (ex *Executor) tellClaimed(key flight.Key, wanted time.Time) {
	if ex.cfg.Events.Claimed != nil {
		ex.cfg.Events.Claimed(key, time.Since(wanted))
	}
}

// worthWaiting reports whether an etcd that does not answer need not be the end of a wait: somebody's attempt is open,
// and its end will be seen in the ledger.
func (ex *Executor) worthWaiting(id flight.ID, err error) bool {
	if !errors.Is(err, lease.ErrUnavailable) {
		return false
	}
	f, err := ex.cfg.Ledger.Flight(id)
	return err == nil && f.OpenAttempt() != nil
}

// tryClaim is one try at the key. An etcd that does not answer in time is none: the caller is told, and may ask again. It
// does not end with the caller, who is not waited for: a claim that comes too late is let go.
func (ex *Executor) tryClaim(ctx context.Context, w waiter) (lease.Lease, error) {
	patience := ex.asking.Context()
	right, err := w.session.TryAcquire(patience, w.key)
	switch {
	case err == nil && ctx.Err() != nil:
		right.Release()
		return nil, context.Cause(ctx)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && patience.Err() != nil && !errors.Is(err, lease.ErrHeld):
		return nil, fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return right, err
}

// await reads the flight, and unless it is final waits at most d for a change of it.
func (ex *Executor) await(ctx context.Context, id flight.ID, final func(*flight.Flight) bool, d time.Duration) (f *flight.Flight, changed bool, err error) {
	f, err = ex.cfg.Ledger.Flight(id)
	if err != nil || final(f) || ctx.Err() != nil {
		return f, false, err
	}
	if next, changed := ex.waitChange(ctx, id, version(f), d); changed {
		return next, true, nil
	}
	return f, false, nil
}

// waitChange waits at most d for another version of the flight than the one seen.
func (ex *Executor) waitChange(ctx context.Context, id flight.ID, seen flight.Version, d time.Duration) (f *flight.Flight, changed bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	f, err := ex.cfg.Ledger.Wait(ctx, id, seen)
	if err != nil && ctx.Err() == nil {
		<-ctx.Done() // the ledger cannot tell: the wait is what is left, or callers would ask it in a circle
	}
	return f, err == nil
}

// isSettled reports whether nobody but a person can change what callers are told.
func isSettled(f *flight.Flight) bool {
	return f != nil && (f.State.Terminal() || f.State == flight.InDoubt || f.State == flight.AwaitingApproval)
}

// differs reports whether the key belongs to another input than this submission's.
func differs(f *flight.Flight, s *flight.Submission) bool {
	return f != nil && f.State != flight.Absent && !f.Fingerprint.Matches(s.Fingerprint)
}

func version(f *flight.Flight) flight.Version {
	if f == nil {
		return flight.Version{}
	}
	return f.Version
}

// jitter spreads d, so that parties that were set off together part again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
