package flightdtest

import (
	"context"
	"maps"
	"slices"

	"github.com/flightd/flightd/flight"
)

// Follower is the ledger as seen by a node that is not the leader. Proposals and reports go to the ledger. Flights,
// sessions and the header are read as this node has applied them, which may be behind: see Lag. Time and bodies are the
// ledger's. Follower implements the same interfaces as Ledger, and has the same faults.
type Follower struct {
	*Ledger

	// Guarded by the ledger's mutex.
	lag          int
	pending      []logEntry // applied by the ledger, not yet by this node; oldest first
	state        logEntry   // after the last command that this node has applied, with all flights
	heldSessions *flight.Sessions
	waiting      map[flight.ID]chan struct{}
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
	f := &Follower{Ledger: l, heldSessions: flight.NewSessions(), waiting: make(map[flight.ID]chan struct{}),
		state: logEntry{header: l.header, flights: maps.Clone(l.flights)}}
	for _, existing := range l.flights {
		f.heldSessions.Update(nil, existing)
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

// enqueue adds the effect of a command. The caller holds the lock.
func (f *Follower) enqueue(e logEntry) {
	f.pending = append(f.pending, e)
	f.apply()
}

// apply applies the entries beyond the lag, and wakes their waiters. The caller holds the lock.
func (f *Follower) apply() {
	for len(f.pending) > f.lag {
		e := f.pending[0]
		f.pending = f.pending[1:]
		f.state.header = e.header
		for id, after := range e.flights {
			f.heldSessions.Update(f.state.flights[id], after)
			f.state.flights[id] = after
			if waiting := f.waiting[id]; waiting != nil {
				close(waiting)
				delete(f.waiting, id)
			}
		}
	}
}

// Flight implements executor.Ledger.
func (f *Follower) Flight(id flight.ID) (*flight.Flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.flights[id], nil
}

// Wait implements executor.Ledger.
func (f *Follower) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	return waitFor(ctx, func() (*flight.Flight, <-chan struct{}) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return changedSince(f.state.flights[id], seen, id, f.waiting)
	})
}

// Header implements executor.Reader.
func (f *Follower) Header() flight.Header {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.header
}

// Epoch implements lease.LedgerState.
func (f *Follower) Epoch() uint32 { return f.Header().LeaseEpoch }

// Counter implements lease.LedgerState.
func (f *Follower) Counter() uint64 { return f.Header().GuardCounter }

// HeldBy implements executor.Sessions.
func (f *Follower) HeldBy(id flight.SessionID, after flight.ID, limit int) (flights []flight.ID, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heldSessions.HeldFlights(id, after, limit)
}

// HeldCount implements executor.Sessions.
func (f *Follower) HeldCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heldSessions.HeldCount()
}

// Holders implements executor.Sessions.
func (f *Follower) Holders() []flight.Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(f.heldSessions.Holders())
}

// Overdue implements executor.Reader.
func (f *Follower) Overdue(limit int) []flight.ID {
	now := f.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	return overdueFlights(f.state.flights, f.state.header, now, limit)
}
