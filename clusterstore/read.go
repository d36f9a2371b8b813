package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/flightd/flightd/flight"
)

// ErrNoBody: the ledger holds no such bytes. They never existed, or have been redacted or deleted.
var ErrNoBody = errors.New("clusterstore: no such body")

// reader reads the state of this node as of the last entry applied here.
type reader struct {
	fsm     *fsm
	closing chan struct{} // closed with the store
}

// Header returns the ledger's header as of the last entry applied here.
func (r *reader) Header() flight.Header { return r.fsm.published.Load().header }

// LastApplied names the last entry applied here. It is durable in the log of this node.
func (r *reader) LastApplied() EntryID {
	m := &r.fsm.published.Load().meta
	return EntryID{Index: m.Applied, Term: m.Term}
}

// waitApplied waits until an index is applied here.
func (r *reader) waitApplied(ctx context.Context, index uint64) error {
	for {
		progress := r.fsm.appliedIndex.wait(index)
		if progress == nil {
			return nil
		}
		select {
		case <-progress:
		case <-r.closing:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Flight returns a flight as applied on this node, without the bytes of its bodies, or nil if its key was never used
// here. It does not wait. The result may be stale, and nil is no proof that the key was never used; call Barrier
// first for that. The flight must not be changed.
func (r *reader) Flight(id flight.ID) (*flight.Flight, error) {
	stored, err := r.fsm.read(id)
	return flightOf(stored), err
}

// Body returns the exact bytes of a flight's input or receipt in a generation; ErrNoBody when there are none.
func (r *reader) Body(id flight.ID, generation uint32, p BodyKind) ([]byte, error) {
	stored, err := r.fsm.read(id)
	if err != nil {
		return nil, err
	}
	if f := flightOf(stored); p == BodyInput && f != nil && f.Generation == generation && f.InputGeneration != 0 {
		generation = f.InputGeneration // a retried generation reuses the input of the first one
	}
	if body, found := stored.body(generation, p); found {
		return bytes.Clone(body), nil
	}
	key := bodyKey(nil, id, generation, p)
	if body, found := r.fsm.view.Load().row(id, key); found {
		if body == nil {
			return nil, ErrNoBody
		}
		return bytes.Clone(body), nil
	}
	var body []byte
	found, err := r.fsm.state.get(key, func(b []byte) error {
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
func (r *reader) Wait(ctx context.Context, id flight.ID, known flight.Version) (*flight.Flight, error) {
	for {
		f, changed, err := r.waitOnce(ctx, id, known)
		if changed || err != nil {
			return f, err
		}
	}
}

// waitOnce waits for one change of the flight. It returns changed false when the caller must read the flight again.
func (r *reader) waitOnce(ctx context.Context, id flight.ID, known flight.Version) (_ *flight.Flight, changed bool, _ error) {
	next := r.fsm.waiters.join(id)
	defer r.fsm.waiters.leave(id, next)
	f, err := r.Flight(id)
	if err != nil {
		return nil, false, err
	}
	if version(f) != known {
		return f, true, nil
	}
	select {
	case <-next.changed:
		return nil, false, nil
	case <-r.closing:
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
func (r *reader) History(id flight.ID) ([]flight.HistoryEvent, error) {
	r.fsm.flush()
	var history []flight.HistoryEvent
	err := r.fsm.state.scan(flightKey(nil, id, historyRow), flightKey(nil, id, historyRow+1), func(key, value []byte) (bool, error) {
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

// livePage is how many rows of the index of live flights are read before their flights: it limits how long one iterator
// stays open.
const livePage = 512

// Live yields the live flights (neither terminal nor absent), oldest first. A flight that ends during the iteration may
// still be yielded. An error ends the iteration.
func (r *reader) Live() iter.Seq2[*flight.Flight, error] {
	return func(yield func(*flight.Flight, error) bool) {
		r.fsm.flush()
		for from := kindKey(liveRow); ; {
			var ids []flight.ID
			err := r.fsm.state.scan(from, kindKey(liveRow+1), func(key, _ []byte) (bool, error) {
				_, id, err := splitOrderedKey(key)
				ids, from = append(ids, id), append(bytes.Clone(key), 0)
				return len(ids) < livePage, err
			})
			for _, id := range ids {
				if f, err := r.Flight(id); !yield(f, err) || err != nil {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
			if err != nil || len(ids) < livePage {
				return
			}
		}
	}
}

// Input returns the exact bytes of a flight's input, or nil if no bytes are stored.
func (r *reader) Input(f *flight.Flight) ([]byte, error) {
	if f.Input.StoredSize == 0 { // an empty body has no row
		return nil, nil
	}
	return r.Body(f.ID, f.Generation, BodyInput)
}

// ReceiptBody returns the exact bytes of a receipt's body, or nil if no bytes are stored.
func (r *reader) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if f.Receipt == nil || f.Receipt.Body.StoredSize == 0 {
		return nil, nil
	}
	return r.Body(f.ID, f.Generation, BodyReceipt)
}

// Counts returns the number of flights in each state, including tombstones and freed keys.
func (r *reader) Counts() map[flight.State]int64 {
	counts := make(map[flight.State]int64)
	for state, n := range r.fsm.published.Load().meta.Counts {
		if n != 0 {
			counts[flight.State(state)] = n
		}
	}
	return counts
}
