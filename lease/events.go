package lease

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// Events tell logs, metrics and tests what happens in this package. Every function may be nil. They are called from many
// goroutines at once, must not block and must not call back.
type Events struct {
	// SessionStarted: this process made a session.
	SessionStarted func(id flight.SessionID, ttl time.Duration)
	// SessionEnded: this process does not trust a session any more. Leases is how many leases of attempts it had given
	// under the session that were not released.
	SessionEnded func(id flight.SessionID, cause error, leases int)
	// Renewed: a renewal was answered; trust is what was left of the window when the answer came.
	Renewed func(id flight.SessionID, trust time.Duration)
	// RenewFailed: a renewal was not answered; trust is what is left.
	RenewFailed func(id flight.SessionID, trust time.Duration, err error)
	// Claimed: a claim was written. Released: a lease's claim was deleted, or is not there any more.
	Claimed  func(key flight.Key, session flight.SessionID)
	Released func(key flight.Key, session flight.SessionID)
	// Committed: a transaction of claims and releases went to etcd. With an error nobody knows what happened.
	Committed func(ops int, took time.Duration, err error)
	// Refused: nothing is claimed any more (ErrRegressed, ErrForeign), or again (nil).
	Refused func(err error)
}

func (e *Events) sessionStarted(id flight.SessionID, ttl time.Duration) {
	if e.SessionStarted != nil {
		e.SessionStarted(id, ttl)
	}
}

func (e *Events) sessionEnded(id flight.SessionID, cause error, leases int) {
	if e.SessionEnded != nil {
		e.SessionEnded(id, cause, leases)
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

func (e *Events) claimed(key flight.Key, session flight.SessionID) {
	if e.Claimed != nil {
		e.Claimed(key, session)
	}
}

func (e *Events) released(key flight.Key, session flight.SessionID) {
	if e.Released != nil {
		e.Released(key, session)
	}
}

func (e *Events) committed(ops int, took time.Duration, err error) {
	if e.Committed != nil {
		e.Committed(ops, took, err)
	}
}

func (e *Events) refused(err error) {
	if e.Refused != nil {
		e.Refused(err)
	}
}
