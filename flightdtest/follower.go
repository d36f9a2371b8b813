package flightdtest

import (
	"maps"

	"github.com/flightd/flightd/flight"
)

// Follower is the ledger as seen by a node that is not the leader. Proposals and reports go to the ledger. Flights,
// sessions and the header are read as this node has applied them, which may be behind: see Lag. Time and bodies are the
// ledger's. Follower implements the same interfaces as Ledger, and has the same faults.
type Follower struct {
	*Ledger

	// Guarded by the ledger's mutex.
	lag     int
	pending []logEntry // applied by the ledger, not yet by this node; oldest first
	view               // after the last command that this node has applied
}

// logEntry is the effect of one command: the header after it, and the changed flights; nil for a deleted one.
type logEntry struct {
	header  flight.Header
	flights map[flight.ID]*flight.Flight
}

var _ ledgerView = (*Follower)(nil)

// Follower returns another node's view of the ledger, up to date and without lag.
func (l *Ledger) Follower() *Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Follower{Ledger: l, view: newView(l.mu)}
	f.header, f.flights = l.header, maps.Clone(l.flights)
	for _, existing := range l.flights {
		f.sessions.Update(nil, existing)
	}
	l.followers = append(l.followers, f)
	return f
}

// Lag keeps the follower that many commands behind the ledger from now on: it applies a command when that many newer
// ones exist. 0, the default, is no lag. Applied commands are not undone, so a very large number freezes the view.
func (f *Follower) Lag(commands int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = commands
	f.apply()
}

// apply applies the entries beyond the lag, and wakes their waiters. The caller holds the lock.
func (f *Follower) apply() {
	for len(f.pending) > f.lag {
		e := f.pending[0]
		f.pending = f.pending[1:]
		f.header = e.header
		for id, after := range e.flights {
			f.sessions.Update(f.flights[id], after)
			f.flights[id] = after
			f.wake(id)
		}
	}
}

// Flight implements executor.Ledger.
func (f *Follower) Flight(id flight.ID) (*flight.Flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flights[id], nil
}

// Overdue implements executor.Reader.
func (f *Follower) Overdue(limit int) []flight.ID { return f.overdue(f.Now(), limit) }
