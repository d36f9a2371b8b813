package executor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
)

// The pauses of a caller that waits for somebody else's attempt: the ledger wakes it, and it looks by itself in case that
// the attempt's holder has died without a word.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = time.Second
)

// Checker finds out whether a session still lives, and has its attempts ended where it does not. It does not wait for that.
type Checker interface {
	Check(session flight.Session)
}

// waitTurn waits while somebody else's attempt is open. It gives the flight once that is final for the call's callers; nil
// where it is worth opening.
func (ex *Executor) waitTurn(t *trip) (final *flight.Flight, err error) {
	t.flying.Store(false)
	f, err := ex.cfg.Ledger.Flight(t.id)
	for {
		switch {
		case err != nil:
			return nil, err
		case answer.IsFinal(f), answer.Differs(f, &t.call.Submission):
			return f, nil
		case t.interest.Err() != nil:
			return nil, context.Cause(&t.interest)
		case f.OpenAttempt() == nil || isOverdue(f, ex.cfg.Memory.Now()):
			return nil, nil
		}
		ex.check(f)
		if next := ex.waitChange(&t.interest, t.id, f.Version, jitter(lastPoll)); next != nil {
			f = next // what ended the wait: a later generation may have begun since
			continue
		}
		f, err = ex.cfg.Ledger.Flight(t.id)
	}
}

// check has the session looked at that holds the flight.
func (ex *Executor) check(f *flight.Flight) {
	if holder := f.Holder(); holder != nil && ex.cfg.Checker != nil {
		ex.cfg.Checker.Check(*holder)
	}
}

// waitChange waits at most d for another version of the flight than the one seen; nil when there was none.
func (ex *Executor) waitChange(ctx context.Context, id flight.ID, seen flight.Version, d time.Duration) *flight.Flight {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	f, err := ex.cfg.Ledger.Wait(ctx, id, seen)
	if err == nil {
		return f
	}
	if ctx.Err() == nil {
		<-ctx.Done() // the ledger cannot tell: without this pause callers would ask it in a circle
	}
	return nil
}

func version(f *flight.Flight) flight.Version {
	if f == nil {
		return flight.Version{}
	}
	return f.Version
}

// jitter spreads d, so that parties that were set off together part again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
