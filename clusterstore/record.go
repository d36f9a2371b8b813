package clusterstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// record is a flight as stored: the flight without the bytes of its bodies, and the short bodies of all its
// generations. So a replay of a usual receipt reads one row, and a usual flight writes two rows less. Longer bodies
// have their own rows, which are written once, however often the flight changes. The duplicate statistics have a row
// of their own in the state, the only row that a duplicate changes.
//
// A published record is immutable, except for the cache's referenced bit. A nil record stands for a key that was
// never used.
type record struct {
	flight     *flight.Flight
	bodies     []inlineBody
	referenced atomic.Bool // read since the cache's hand last passed
}

// inlineBody is a non-empty body of at most maxInlineBody bytes that is stored in the record.
type inlineBody struct {
	generation uint32
	kind       BodyKind
	data       []byte
}

// maxInlineBody: most inputs and receipts are shorter. Up to this length, writing a body again with each change of
// its flight costs less than a row of its own.
const maxInlineBody = 1 << 10

// maxInlineTotal limits the inline bodies of all generations of a flight: each change of the flight writes all of
// them again.
const maxInlineTotal = 4 * maxInlineBody

// flightOf returns the flight of a record, or nil for a nil record.
func flightOf(r *record) *flight.Flight {
	if r == nil {
		return nil
	}
	return r.flight
}

// withFlight returns a new record with the flight f and the bodies of r. Its bodies may be changed until the record
// is published.
func (r *record) withFlight(f *flight.Flight) *record {
	n := &record{flight: f}
	if r != nil {
		n.bodies = slices.Clip(r.bodies)
	}
	return n
}

// body returns an inline body.
func (r *record) body(generation uint32, p BodyKind) (data []byte, found bool) {
	if r == nil {
		return nil, false
	}
	for i := range r.bodies {
		if b := &r.bodies[i]; b.generation == generation && b.kind == p {
			return b.data, true
		}
	}
	return nil, false
}

// putBody adds an inline body, or replaces the one of the same generation and kind.
func (r *record) putBody(b inlineBody) {
	r.removeBody(b.generation, b.kind)
	r.bodies = append(r.bodies, b)
}

// removeBody removes an inline body, and reports whether it existed.
func (r *record) removeBody(generation uint32, p BodyKind) bool {
	if _, found := r.body(generation, p); !found {
		return false
	}
	r.bodies = slices.DeleteFunc(slices.Clone(r.bodies), func(b inlineBody) bool { return b.generation == generation && b.kind == p })
	return true
}

// inlineBytes is the total length of the inline bodies.
func (r *record) inlineBytes() int {
	n := 0
	for i := range r.bodies {
		n += len(r.bodies[i].data)
	}
	return n
}

// weight is the share of the cache's capacity that the record takes.
func (r *record) weight() int { return 1 + r.inlineBytes()/recordOverhead }

// recordOverhead is the approximate size in memory of a record without bodies.
const recordOverhead = 2 << 10

// appendRecord appends an encoded record to b, without its duplicate statistics: the number of bodies, each body, and
// the flight.
func appendRecord(b []byte, r *record) ([]byte, error) {
	f := r.flight
	if f.Duplicates != nil {
		without := *f
		without.Duplicates = nil
		f = &without
	}
	b = binary.AppendUvarint(b, uint64(len(r.bodies)))
	for i := range r.bodies {
		body := &r.bodies[i]
		b = binary.AppendUvarint(b, uint64(body.generation))
		b = append(b, byte(body.kind))
		b = binary.AppendUvarint(b, uint64(len(body.data)))
		b = append(b, body.data...)
	}
	return flight.AppendRecord(b, f)
}

// decodeRecord decodes the output of appendRecord. It does not retain b.
func decodeRecord(b []byte) (*record, error) {
	r := &record{flight: new(flight.Flight)}
	count, b, ok := cutUvarint(b)
	if !ok || count > uint64(len(b)) {
		return nil, errTruncatedRow
	}
	if count > 0 {
		r.bodies = make([]inlineBody, count)
	}
	for i := range r.bodies {
		generation, rest, ok := cutUvarint(b)
		if !ok || len(rest) == 0 {
			return nil, errTruncatedRow
		}
		part := BodyKind(rest[0])
		n, rest, ok := cutUvarint(rest[1:])
		if !ok || n > uint64(len(rest)) {
			return nil, errTruncatedRow
		}
		r.bodies[i] = inlineBody{generation: uint32(generation), kind: part, data: slices.Clone(rest[:n])}
		b = rest[n:]
	}
	if err := flight.DecodeRecord(b, r.flight); err != nil {
		return nil, fmt.Errorf("clusterstore: decode a record: %w", err)
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
