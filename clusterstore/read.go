package clusterstore

import (
	"bytes"
	"context"
	"errors"

	"github.com/flightd/flightd/flight"
)

// ErrNoBody says that the ledger keeps no such bytes: there never were any, or their retention is over.
var ErrNoBody = errors.New("clusterstore: no such body")

// Flight reads a flight as this node has it, without the bytes of its bodies; nil when its key was never used. It
// waits for nothing. What it finds is true and may be old; that it finds nothing proves nothing: see Barrier.
// The flight must not be changed.
func (s *Store) Flight(id flight.ID) (*flight.Flight, error) {
	r, err := s.machine.read(id)
	return flightOf(r), err
}

// Body reads the exact bytes of a flight's input or of its receipt in a generation. ErrNoBody when there are none.
func (s *Store) Body(id flight.ID, generation uint32, p Part) ([]byte, error) {
	r, err := s.machine.read(id)
	if err != nil {
		return nil, err
	}
	if f := flightOf(r); p == Input && f != nil && f.Generation == generation && f.InputFrom != 0 {
		generation = f.InputFrom // a retried generation goes on with the input of the first one
	}
	if body, found := r.body(generation, p); found {
		return bytes.Clone(body), nil
	}
	key := bodyKey(nil, id, generation, p)
	if body, found := s.machine.view.Load().row(id, key); found {
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

// Wait waits until the flight has another version than the one seen, and reads it. The zero version is that of a key
// that was never used. Errors: that of ctx, ErrClosed, or of the read.
func (s *Store) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	for {
		f, changed, err := s.waitOnce(ctx, id, seen)
		if changed || err != nil {
			return f, err
		}
	}
}

// waitOnce waits for one change. changed is false when the one that came is not one from what was seen.
func (s *Store) waitOnce(ctx context.Context, id flight.ID, seen flight.Version) (_ *flight.Flight, changed bool, _ error) {
	next := s.machine.waiters.join(id)
	defer s.machine.waiters.leave(id, next)
	f, err := s.Flight(id)
	if err != nil {
		return nil, false, err
	}
	if version(f) != seen {
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

// HistoryEvent is one event and the place in the log of the command that brought it about.
type HistoryEvent struct {
	Version flight.Version
	flight.Event
}

// History reads what happened to a flight, in order, in all its generations. A tombstone has none.
func (s *Store) History(id flight.ID) ([]HistoryEvent, error) {
	s.machine.flush()
	var history []HistoryEvent
	err := s.state.scan(ownKey(nil, id, historyRow), ownKey(nil, id, historyRow+1), func(key, value []byte) (bool, error) {
		v, ok := splitHistory(key)
		if !ok {
			return false, errRow
		}
		events, err := decodeEvents(value)
		for _, e := range events {
			history = append(history, HistoryEvent{Version: v, Event: e})
		}
		return err == nil, err
	})
	return history, err
}

// LivePlace is a place in the order of living flights: that of their creation. The zero value is before all.
type LivePlace struct {
	Created flight.Time
	ID      flight.ID
}

// Live reads flights that something may still happen to, neither terminal nor absent, oldest first, from behind after
// on: at most limit of them, and the place to go on from. Fewer than limit: there are no more. It reads an index that
// holds just these; one that ends while it is read may still be among them.
func (s *Store) Live(after LivePlace, limit int) ([]*flight.Flight, LivePlace, error) {
	s.machine.flush()
	var ids []flight.ID
	from := singleRow(liveRow)
	if after != (LivePlace{}) {
		from = append(placeKey(nil, liveRow, uint64(after.Created), after.ID), 0)
	}
	err := s.state.scan(from, singleRow(liveRow+1), func(key, _ []byte) (bool, error) {
		at, id, err := splitPlace(key)
		ids, after = append(ids, id), LivePlace{Created: flight.Time(at), ID: id}
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

// Counts is how many flights the ledger holds in each state, absent ones that were freed and tombstones included.
func (s *Store) Counts() map[flight.State]int64 {
	counts := make(map[flight.State]int64)
	for state, n := range s.machine.shown.Load().meta.Counts {
		if n != 0 {
			counts[flight.State(state)] = n
		}
	}
	return counts
}
