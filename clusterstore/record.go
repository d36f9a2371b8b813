package clusterstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// record is a flight as the state keeps it: the flight without the bytes of its bodies, and with it those bodies that are
// short, of all its generations. In the state the tally of its duplicates is a row of its own, which is all that a
// duplicate changes. So a replay of a usual receipt reads one row, and a usual flight writes two rows less.
// Longer bodies have rows of their own, which are written once, however often the flight changes. But for
// the cache's mark a record is never changed once it was shown; nil stands for a key that was never used.
type record struct {
	flight *flight.Flight
	bodies []shortBody
	asked  atomic.Bool // since the cache's hand was here last
}

// shortBody is a body of at most longestShort bytes, never an empty one.
type shortBody struct {
	generation uint32
	part       Part
	data       []byte
}

// longestShort is a length that most inputs and receipts do not reach, and at which writing a body with each change of
// its flight still costs less than a row of its own.
const longestShort = 1 << 10

// mostShort bounds what all generations of a flight keep short: with each change all of it is written again.
const mostShort = 4 * longestShort

// flightOf is the flight of a record; nil for none.
func flightOf(r *record) *flight.Flight {
	if r == nil {
		return nil
	}
	return r.flight
}

// next is the record behind this one, with the same bodies. Its bodies may be changed until it is shown.
func (r *record) next(f *flight.Flight) *record {
	n := &record{flight: f}
	if r != nil {
		n.bodies = slices.Clip(r.bodies)
	}
	return n
}

// body finds a short body.
func (r *record) body(generation uint32, p Part) (data []byte, found bool) {
	if r == nil {
		return nil, false
	}
	for i := range r.bodies {
		if b := &r.bodies[i]; b.generation == generation && b.part == p {
			return b.data, true
		}
	}
	return nil, false
}

// set puts a short body in, in the place of another one where there is one.
func (r *record) set(b shortBody) {
	r.drop(b.generation, b.part)
	r.bodies = append(r.bodies, b)
}

// drop takes a short body out, and reports whether it was there.
func (r *record) drop(generation uint32, p Part) bool {
	if _, found := r.body(generation, p); !found {
		return false
	}
	r.bodies = slices.DeleteFunc(slices.Clone(r.bodies), func(b shortBody) bool { return b.generation == generation && b.part == p })
	return true
}

// length is that of all short bodies together.
func (r *record) length() int {
	n := 0
	for i := range r.bodies {
		n += len(r.bodies[i].data)
	}
	return n
}

// weight is how many places in memory a record takes.
func (r *record) weight() int { return 1 + r.length()/usualWeight }

// usualWeight is about what a record without bodies takes, in bytes.
const usualWeight = 2 << 10

// appendRecord writes a record behind b, without its tally: how many bodies there are, each body, and the flight.
func appendRecord(b []byte, r *record) ([]byte, error) {
	f := r.flight
	if f.Duplicates != nil {
		without := *f
		without.Duplicates = nil
		f = &without
	}
	b = binary.AppendUvarint(b, uint64(len(r.bodies)))
	for i := range r.bodies {
		one := &r.bodies[i]
		b = binary.AppendUvarint(b, uint64(one.generation))
		b = append(b, byte(one.part))
		b = binary.AppendUvarint(b, uint64(len(one.data)))
		b = append(b, one.data...)
	}
	return flight.AppendRecord(b, f)
}

// decodeRecord reads what appendRecord wrote. It keeps nothing of b.
func decodeRecord(b []byte) (*record, error) {
	r := &record{flight: new(flight.Flight)}
	count, b, ok := cutUvarint(b)
	if !ok || count > uint64(len(b)) {
		return nil, errRow
	}
	if count > 0 {
		r.bodies = make([]shortBody, count)
	}
	for i := range r.bodies {
		generation, rest, ok := cutUvarint(b)
		if !ok || len(rest) == 0 {
			return nil, errRow
		}
		part := Part(rest[0])
		n, rest, ok := cutUvarint(rest[1:])
		if !ok || n > uint64(len(rest)) {
			return nil, errRow
		}
		r.bodies[i] = shortBody{generation: uint32(generation), part: part, data: slices.Clone(rest[:n])}
		b = rest[n:]
	}
	if err := flight.DecodeRecord(b, r.flight); err != nil {
		return nil, fmt.Errorf("clusterstore: record: %w", err)
	}
	return r, nil
}

func cutUvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 {
		return 0, nil, false
	}
	return n, b[w:], true
}
