package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/flightd/flightd/flight"
)

// The state is rows of these kinds. What belongs to one flight stands together, under its id; the indexes stand apart,
// each in the order of a time, so that new rows come next to each other.
const (
	metaRow    = 'M' // one row: how far the log was applied
	headerRow  = 'H' // one row: the ledger's header
	flightRows = 'f' // id and one of the kinds below
	liveRow    = 'l' // creation time, id → nothing; while the flight is neither terminal nor absent
	listRow    = 'c' // creation time, newest first, id → key; while it is neither absent nor a tombstone
	expiryRow  = 'e' // end of retention, id → nothing; while it is finished and no tombstone, or holds nothing but used nonces
	rollRow    = 'n' // index of an entry → ids of the flights that came into being by it; for ever
	erasedRow  = 'r' // index of the entry, id → nothing; for ever: bytes of this flight were erased by that entry
	endedRow   = 's' // id of a session that has ended → until when that is remembered
	touchedRow = 't' // version of an Ended → ids of the flights to whose histories it wrote; for ever
)

// The rows of one flight.
const (
	tallyRow   = 0 // its duplicates; in front, so that whoever looks for the two finds both in one place
	recordRow  = 1 // the flight, with those of its bodies that are short
	historyRow = 2 // version → events
	bodyRow    = 3 // generation and part → bytes of a body that is not short
)

// ownKind is where the kind stands in the key of a row of a flight.
const ownKind = 17

// Part says which body of a generation is meant.
type Part uint8

// The parts.
const (
	Input Part = iota + 1
	Receipt
)

func singleRow(kind byte) []byte { return []byte{kind} }

// maxRowKey is the length of the longest key of a row.
const maxRowKey = 30

// Keys are written behind b, which may be nil.

// ownKey starts the key of a row of a flight.
func ownKey(b []byte, id flight.ID, kind byte) []byte {
	return append(append(append(b, flightRows), id[:]...), kind)
}

func tallyKey(b []byte, id flight.ID) []byte { return ownKey(b, id, tallyRow) }

func recordKey(b []byte, id flight.ID) []byte { return ownKey(b, id, recordRow) }

func historyKey(b []byte, id flight.ID, v flight.Version) []byte {
	b = binary.BigEndian.AppendUint64(ownKey(b, id, historyRow), v.Index)
	return binary.BigEndian.AppendUint32(b, v.Pos)
}

func splitHistory(key []byte) (v flight.Version, ok bool) {
	if len(key) != 30 {
		return v, false
	}
	return flight.Version{Index: binary.BigEndian.Uint64(key[18:]), Pos: binary.BigEndian.Uint32(key[26:])}, true
}

func bodyKey(b []byte, id flight.ID, generation uint32, p Part) []byte {
	return append(binary.BigEndian.AppendUint32(ownKey(b, id, bodyRow), generation), byte(p))
}

// placeKey is the key of a row of an index.
func placeKey(b []byte, kind byte, at uint64, id flight.ID) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint64(b, at)
	return append(b, id[:]...)
}

// splitPlace reads what placeKey wrote.
func splitPlace(key []byte) (at uint64, id flight.ID, err error) {
	if len(key) != 25 {
		return 0, id, errRow
	}
	return binary.BigEndian.Uint64(key[1:]), flight.ID(key[9:]), nil
}

// liveKey is the place of a flight in the index of those that something may still happen to; nil: it has none.
func liveKey(b []byte, f *flight.Flight) []byte {
	if f == nil || f.State == flight.Absent || f.State.Terminal() {
		return nil
	}
	return placeKey(b, liveRow, uint64(f.CreatedAt), f.ID)
}

// listKey is the place of a flight in lists; nil: it has none, because it was never submitted, was freed, or is a
// tombstone.
func listKey(b []byte, f *flight.Flight) []byte {
	if f == nil || f.CreatedAt == 0 || f.State == flight.Absent || f.State == flight.Expired {
		return nil
	}
	return placeKey(b, listRow, ^uint64(f.CreatedAt), f.ID)
}

// expiryKey is the place of a flight in the index of retentions; nil: it has none.
func expiryKey(b []byte, f *flight.Flight) []byte {
	if at := f.DeletableAt(); at > 0 {
		return placeKey(b, expiryRow, uint64(at), f.ID)
	}
	if f == nil || !f.State.Terminal() || f.State == flight.Expired {
		return nil
	}
	return placeKey(b, expiryRow, uint64(f.ExpiresAt()), f.ID)
}

// endedKey is the key of the row of an ended session.
func endedKey(b []byte, id flight.SessionID) []byte { return append(append(b, endedRow), id...) }

// touchedKey is the key of the row that says to which flights an Ended wrote.
func touchedKey(b []byte, at flight.Version) []byte {
	b = binary.BigEndian.AppendUint64(append(b, touchedRow), at.Index)
	return binary.BigEndian.AppendUint32(b, at.Pos)
}

// encodeEvents writes the events of one command behind b as one row: each behind its length.
func encodeEvents(b []byte, events []flight.Event) ([]byte, error) {
	const usual = 1 // byte of length; most events are shorter than 128 bytes
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

var errRow = errors.New("clusterstore: a row of the state is cut off")

func decodeEvents(b []byte) ([]flight.Event, error) {
	var events []flight.Event
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return nil, errRow
		}
		var e flight.Event
		if err := flight.DecodeRecord(b[w:w+int(n)], &e); err != nil {
			return nil, fmt.Errorf("clusterstore: history: %w", err)
		}
		events, b = append(events, e), b[w+int(n):]
	}
	return events, nil
}
