package flightdtest

import (
	"context"
	"slices"
	"sync"

	"github.com/flightd/flightd/flight"
)

// view is what a node has applied of the ledger.
type view struct {
	mu       *sync.Mutex // the ledger's; guards the fields below
	header   flight.Header
	flights  map[flight.ID]*flight.Flight
	sessions *flight.Sessions
	waiting  map[flight.ID]chan struct{} // closed and deleted by the next change of the flight
}

func newView(mu *sync.Mutex) view {
	return view{mu: mu, flights: make(map[flight.ID]*flight.Flight), sessions: flight.NewSessions(), waiting: make(map[flight.ID]chan struct{})}
}

// wake wakes the waiters for a flight. The caller holds the lock.
func (v *view) wake(id flight.ID) {
	if waiting := v.waiting[id]; waiting != nil {
		close(waiting)
		delete(v.waiting, id)
	}
}

// Wait implements executor.Ledger.
func (v *view) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	for {
		v.mu.Lock()
		f, changed := v.flights[id], v.waiting[id]
		if f == nil && seen != (flight.Version{}) || f != nil && f.Version != seen {
			v.mu.Unlock()
			return f, nil
		}
		if changed == nil {
			changed = make(chan struct{})
			v.waiting[id] = changed
		}
		v.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Header implements executor.Reader.
func (v *view) Header() flight.Header {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.header
}

// Epoch implements lease.LedgerState.
func (v *view) Epoch() uint32 { return v.Header().LeaseEpoch }

// Counter implements lease.LedgerState.
func (v *view) Counter() uint64 { return v.Header().GuardCounter }

// HeldBy implements executor.Sessions.
func (v *view) HeldBy(id flight.SessionID, after flight.ID, limit int) (flights []flight.ID, all int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sessions.HeldFlights(id, after, limit)
}

// HeldCount implements executor.Sessions.
func (v *view) HeldCount() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sessions.HeldCount()
}

// Holders implements executor.Sessions.
func (v *view) Holders() []flight.Session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(v.sessions.Holders())
}

// overdue is Overdue of executor.Reader at a time of the ledger.
func (v *view) overdue(now flight.Time, limit int) (overdue []flight.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	due, h := flight.NewDue(), v.header
	for _, f := range v.flights {
		due.Update(nil, f)
	}
	h.Now = now
	for id := range due.Overdue(&h) {
		if len(overdue) < limit {
			overdue = append(overdue, id)
		}
	}
	return overdue
}
