package lease

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// Events are the only window into this room: logs, metrics and tests fill in what they want to see. Every function may
// be nil. They are called at once from many goroutines, must not block and must not call back.
type Events struct {
	// TermStarted: a session has an etcd lease, and works under this id from now on.
	TermStarted func(id flight.SessionID, ttl time.Duration)
	// TermEnded: that lease is gone or given up; claims died with it.
	TermEnded func(id flight.SessionID, cause error, claims int)
	// Renewed: a renewal was answered; trust is what was left of the window when the answer came.
	Renewed func(id flight.SessionID, trust time.Duration)
	// RenewFailed: a renewal was not answered; trust is what is left.
	RenewFailed func(id flight.SessionID, trust time.Duration, err error)
	// Claimed and Released follow each claim.
	Claimed  func(key flight.Key, claim flight.Claim)
	Released func(key flight.Key, claim flight.Claim)
	// Committed: a batch of claims and releases went to etcd.
	Committed func(ops int, took time.Duration, err error)
	// Ambiguous: the answer to a batch was lost; won of its claims were found to be ours, err says that nobody knows.
	Ambiguous func(ops, won int, err error)
	// Stray: a claim of ours that nobody in this process owns was removed.
	Stray func(key flight.Key, claim flight.Claim)
	// Refused: no claims are made any more (ErrRegressed, ErrForeign), or again (nil).
	Refused func(err error)
}

func (e *Events) termStarted(id flight.SessionID, ttl time.Duration) {
	if e.TermStarted != nil {
		e.TermStarted(id, ttl)
	}
}

func (e *Events) termEnded(id flight.SessionID, cause error, claims int) {
	if e.TermEnded != nil {
		e.TermEnded(id, cause, claims)
	}
}

func (e *Events) renewed(id flight.SessionID, trust time.Duration) {
	if e.Renewed != nil {
		e.Renewed(id, trust)
	}
}

func (e *Events) renewFailed(id flight.SessionID, trust time.Duration, err error) {
	if e.RenewFailed != nil {
		e.RenewFailed(id, trust, err)
	}
}

func (e *Events) claimed(key flight.Key, claim flight.Claim) {
	if e.Claimed != nil {
		e.Claimed(key, claim)
	}
}

func (e *Events) released(key flight.Key, claim flight.Claim) {
	if e.Released != nil {
		e.Released(key, claim)
	}
}

func (e *Events) committed(ops int, took time.Duration, err error) {
	if e.Committed != nil {
		e.Committed(ops, took, err)
	}
}

func (e *Events) ambiguous(ops, won int, err error) {
	if e.Ambiguous != nil {
		e.Ambiguous(ops, won, err)
	}
}

func (e *Events) stray(key flight.Key, claim flight.Claim) {
	if e.Stray != nil {
		e.Stray(key, claim)
	}
}

func (e *Events) refused(err error) {
	if e.Refused != nil {
		e.Refused(err)
	}
}
