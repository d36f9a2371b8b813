package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/flightd/flightd/flight"
)

// The state consists of rows of these kinds. The rows of one flight are adjacent, under its id. The indexes are
// separate, and each is ordered by a time, so that new rows are adjacent too.
const (
	metaRow    = 'M' // one row: index and term of the last applied entry
	headerRow  = 'H' // one row: the ledger's header
	flightRows = 'f' // id and one of the kinds below
	liveRow    = 'l' // creation time, id → nothing; while the flight is neither terminal nor absent
	listRow    = 'c' // creation time, newest first, id → key; while the flight is neither absent nor a tombstone
	expiryRow  = 'e' // end of retention, id → nothing; while the flight can expire, or holds only used nonces
	filterRow  = 'n' // index of an entry → ids of the flights that it created; never deleted
	erasedRow  = 'r' // index of an entry, id → nothing; the entry erased bytes of this flight; never deleted
	endedRow   = 's' // id of an ended session → until when the ledger remembers its end
	touchedRow = 't' // version of an EndSession → ids of the flights with an event of it; never deleted

	// The rows below exist from feature level 2 on.
	documentRow   = 'd' // kind, namespace and name, each with its length in front → document
	auditRow      = 'a' // version of a person's command → line of the audit log; never deleted
	namespacesRow = 'q' // one row: number of listed flights by namespace
)

// The rows of one flight.
const (
	duplicatesRow = 0 // duplicate statistics; before the record, so that one seek finds both
	recordRow     = 1 // the flight with its inline bodies
	historyRow    = 2 // version → events
	bodyRow       = 3 // generation and kind → bytes of a body that is not inline
)

// kindOffset is the offset of the kind in the key of a flight's row.
const kindOffset = 17

// BodyKind selects a body of a generation.
type BodyKind uint8

// The kinds of bodies.
const (
	BodyInput BodyKind = iota + 1
	BodyReceipt
)

func kindKey(kind byte) []byte { return []byte{kind} }

// maxRowKey is the length of the longest row key.
const maxRowKey = 30

// The functions below append a key to b, which may be nil.

// flightKey appends the start of a flight's row key.
func flightKey(b []byte, id flight.ID, kind byte) []byte {
	return append(append(append(b, flightRows), id[:]...), kind)
}

func duplicatesKey(b []byte, id flight.ID) []byte { return flightKey(b, id, duplicatesRow) }

func recordKey(b []byte, id flight.ID) []byte { return flightKey(b, id, recordRow) }

func historyKey(b []byte, id flight.ID, v flight.Version) []byte {
	b = binary.BigEndian.AppendUint64(flightKey(b, id, historyRow), v.Index)
	return binary.BigEndian.AppendUint32(b, v.Pos)
}

func splitHistoryKey(key []byte) (v flight.Version, ok bool) {
	if len(key) != 30 {
		return v, false
	}
	return flight.Version{Index: binary.BigEndian.Uint64(key[18:]), Pos: binary.BigEndian.Uint32(key[26:])}, true
}

func bodyKey(b []byte, id flight.ID, generation uint32, p BodyKind) []byte {
	return append(binary.BigEndian.AppendUint32(flightKey(b, id, bodyRow), generation), byte(p))
}

// orderedKey appends the key of an index row.
func orderedKey(b []byte, kind byte, at uint64, id flight.ID) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, at)
	return append(b, id[:]...)
}

// splitOrderedKey decodes the output of orderedKey.
func splitOrderedKey(key []byte) (at uint64, id flight.ID, err error) {
	if len(key) != 25 {
		return 0, id, errTruncatedRow
	}
	return binary.BigEndian.Uint64(key[1:]), flight.ID(key[9:]), nil
}

// liveKey appends the flight's key in the index of live flights. It returns nil for a flight that is not live.
func liveKey(b []byte, f *flight.Flight) []byte {
	if f == nil || f.State == flight.StateAbsent || f.State.Terminal() {
		return nil
	}
	return orderedKey(b, liveRow, uint64(f.CreatedAt), f.ID)
}

// isListed reports whether a flight is in the list index: it was submitted, was not freed, and is not a tombstone.
func isListed(f *flight.Flight) bool {
	return f != nil && f.CreatedAt != 0 && f.State != flight.StateAbsent && f.State != flight.StateExpired
}

// listKey appends the flight's key in the list index. It returns nil for a flight that is not listed.
func listKey(b []byte, f *flight.Flight) []byte {
	if !isListed(f) {
		return nil
	}
	return orderedKey(b, listRow, ^uint64(f.CreatedAt), f.ID)
}

// expiryKey appends the flight's key in the index of retentions. It returns nil for a flight without a retention.
func expiryKey(b []byte, f *flight.Flight) []byte {
	if at := f.DeletableAt(); at > 0 {
		return orderedKey(b, expiryRow, uint64(at), f.ID)
	}
	if f == nil || !f.State.Terminal() || f.State == flight.StateExpired {
		return nil
	}
	return orderedKey(b, expiryRow, uint64(f.ExpiresAt()), f.ID)
}

// endedKey appends the row key of an ended session.
func endedKey(b []byte, id flight.SessionID) []byte { return append(append(b, endedRow), id...) }

// touchedKey appends the key of the row that lists the flights changed by an EndSession.
func touchedKey(b []byte, at flight.Version) []byte { return versionKey(b, touchedRow, at) }

// auditKey appends the key of a line of the audit log.
func auditKey(b []byte, at flight.Version) []byte { return versionKey(b, auditRow, at) }

func versionKey(b []byte, kind byte, at flight.Version) []byte {
	b = binary.BigEndian.AppendUint64(append(b, kind), at.Index)
	return binary.BigEndian.AppendUint32(b, at.Pos)
}

// documentKey appends the row key of a document. A part of an id is at most 255 bytes.
func documentKey(b []byte, id flight.DocumentID) []byte {
	b = append(b, documentRow)
	for _, part := range [...]string{id.Kind, id.Namespace, id.Name} {
		b = append(append(b, byte(len(part))), part...)
	}
	return b
}

// encodeEvents appends the events of one command as one row, each with its length in front.
func encodeEvents(b []byte, events []flight.Event) ([]byte, error) {
	const usual = 1 // length byte; most events are shorter than 128 bytes
	for i := range events {
		start := len(b)
		var err error
		if b, err = flight.AppendRecord(append(b, 0), &events[i]); err != nil {
			return nil, err
		}
		var length [binary.MaxVarintLen64]byte
		n := binary.PutUvarint(length[:], uint64(len(b)-start-usual))
		b = slices.Replace(b, start, start+usual, length[:n]...)
	}
	return b, nil
}

var errTruncatedRow = errors.New("clusterstore: a row of the state is truncated")

func decodeEvents(b []byte) ([]flight.Event, error) {
	var events []flight.Event
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return nil, errTruncatedRow
		}
		var e flight.Event
		if err := flight.DecodeRecord(b[w:w+int(n)], &e); err != nil {
			return nil, fmt.Errorf("clusterstore: decode a history row: %w", err)
		}
		events, b = append(events, e), b[w+int(n):]
	}
	return events, nil
}
