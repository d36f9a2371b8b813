package clusterstore

import (
	"bytes"
	"context"
	"errors"

	"github.com/flightd/flightd/flight"
)

// ErrNoBody: the ledger holds no such bytes. They never existed, or have been redacted or deleted.
var ErrNoBody = errors.New("clusterstore: no such body")

// Flight returns a flight as applied on this node, without the bytes of its bodies; nil when its key was never used
// here. It does not wait. The result may be stale, and nil is no proof that the key was never used; call Barrier
// first for that. The flight must not be changed.
func (s *Store) Flight(id flight.ID) (*flight.Flight, error) {
	r, err := s.fsm.read(id)
	return flightOf(r), err
}

// Body returns the exact bytes of a flight's input or receipt in a generation; ErrNoBody when there are none.
func (s *Store) Body(id flight.ID, generation uint32, p BodyKind) ([]byte, error) {
	r, err := s.fsm.read(id)
	if err != nil {
		return nil, err
	}
	if f := flightOf(r); p == BodyInput && f != nil && f.Generation == generation && f.InputGeneration != 0 {
		generation = f.InputGeneration // a retried generation reuses the input of the first one
	}
	if body, found := r.body(generation, p); found {
		return bytes.Clone(body), nil
	}
	key := bodyKey(nil, id, generation, p)
	if body, found := s.fsm.view.Load().row(id, key); found {
		if body == nil {
			return nil, ErrNoBody
		}
		return bytes.Clone(body), nil
	}
	var body []byte
	found, err := s.state.get(key, func(b []byte) error {
		body = bytes.Clone(b)
		return nil
	})
	if err == nil && !found {
		err = ErrNoBody
	}
	return body, err
}

// Wait waits until the flight's version differs from the known one, and returns the flight. The zero version is that
// of a key that was never used. Errors: that of ctx, ErrClosed, or of the read.
func (s *Store) Wait(ctx context.Context, id flight.ID, known flight.Version) (*flight.Flight, error) {
	for {
		f, changed, err := s.waitOnce(ctx, id, known)
		if changed || err != nil {
			return f, err
		}
	}
}

// waitOnce waits for one change of the flight. It returns changed false when the caller must read the flight again.
func (s *Store) waitOnce(ctx context.Context, id flight.ID, known flight.Version) (_ *flight.Flight, changed bool, _ error) {
	next := s.fsm.waiters.join(id)
	defer s.fsm.waiters.leave(id, next)
	f, err := s.Flight(id)
	if err != nil {
		return nil, false, err
	}
	if version(f) != known {
		return f, true, nil
	}
	select {
	case <-next.changed:
		return nil, false, nil
	case <-s.closing:
		return nil, false, ErrClosed
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
}

func version(f *flight.Flight) flight.Version {
	if f == nil {
		return flight.Version{}
	}
	return f.Version
}

// History returns the events of a flight in all generations, in order. A tombstone has none.
func (s *Store) History(id flight.ID) ([]flight.HistoryEvent, error) {
	s.fsm.flush()
	var history []flight.HistoryEvent
	err := s.state.scan(flightKey(nil, id, historyRow), flightKey(nil, id, historyRow+1), func(key, value []byte) (bool, error) {
		v, ok := splitHistoryKey(key)
		if !ok {
			return false, errTruncatedRow
		}
		events, err := decodeEvents(value)
		for _, e := range events {
			history = append(history, flight.HistoryEvent{Version: v, Event: e})
		}
		return err == nil, err
	})
	return history, err
}

// LiveCursor is a position in the list of live flights, which is ordered by creation. The zero value is before all.
type LiveCursor struct {
	Created flight.Time
	ID      flight.ID
}

// Live returns up to limit live flights (neither terminal nor absent) after a position, oldest first, and the
// position of the last one. Fewer than limit: there are no more. A flight that ends during the call may still be
// returned.
func (s *Store) Live(after LiveCursor, limit int) ([]*flight.Flight, LiveCursor, error) {
	s.fsm.flush()
	var ids []flight.ID
	from := kindKey(liveRow)
	if after != (LiveCursor{}) {
		from = append(orderedKey(nil, liveRow, uint64(after.Created), after.ID), 0)
	}
	err := s.state.scan(from, kindKey(liveRow+1), func(key, _ []byte) (bool, error) {
		at, id, err := splitOrderedKey(key)
		ids, after = append(ids, id), LiveCursor{Created: flight.Time(at), ID: id}
		return len(ids) < limit, err
	})
	if err != nil {
		return nil, after, err
	}
	flights := make([]*flight.Flight, 0, len(ids))
	for _, id := range ids {
		f, err := s.Flight(id)
		if err != nil {
			return nil, after, err
		}
		flights = append(flights, f)
	}
	return flights, after, nil
}

// Counts returns the number of flights in each state, including tombstones and freed keys.
func (s *Store) Counts() map[flight.State]int64 {
	counts := make(map[flight.State]int64)
	for state, n := range s.fsm.published.Load().meta.Counts {
		if n != 0 {
			counts[flight.State(state)] = n
		}
	}
	return counts
}
