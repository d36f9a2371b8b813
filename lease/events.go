package lease

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// Events has a function for each event, for logs, metrics and tests. Each function may be nil, is called concurrently,
// must not block and must not call this package.
type Events struct {
	// SessionStarted: this process created a session.
	SessionStarted func(id flight.SessionID, ttl time.Duration)
	// SessionEnded: this process no longer trusts a session, which has that many unreleased leases of attempts.
	SessionEnded func(id flight.SessionID, cause error, leases int)
	// Renewed: a renewal was answered; trust is the remaining window at the answer.
	Renewed func(id flight.SessionID, trust time.Duration)
	// RenewFailed: a renewal was not answered; trust is the remaining window.
	RenewFailed func(id flight.SessionID, trust time.Duration, err error)
	// Claimed: a claim was written. Released: a lease's claim was deleted or no longer exists.
	Claimed  func(key flight.Key, session flight.SessionID)
	Released func(key flight.Key, session flight.SessionID)
	// Committed: a transaction of claims and releases was sent to etcd. With an error its result is unknown.
	Committed func(ops int, took time.Duration, err error)
	// EtcdRefused: etcd is rejected (ErrRegressed, ErrForeign), so claims are disabled; nil: they are enabled again.
	EtcdRefused func(err error)
}
