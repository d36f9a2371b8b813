package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"

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
	expiryRow  = 'e' // end of retention, id → nothing; while it is finished and no tombstone
)

// The rows of one flight.
const (
	recordRow  = 0 // the flight without the bytes of its bodies
	historyRow = 1 // version → events
	bodyRow    = 2 // generation and part → bytes
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

// ownKey starts the key of a row of a flight.
func ownKey(id flight.ID, kind byte) []byte {
	return append(append(append(make([]byte, 0, 30), flightRows), id[:]...), kind)
}

func recordKey(id flight.ID) []byte { return ownKey(id, recordRow) }

func historyKey(id flight.ID, v flight.Version) []byte {
	b := binary.BigEndian.AppendUint64(ownKey(id, historyRow), v.Index)
	return binary.BigEndian.AppendUint32(b, v.Pos)
}

func splitHistory(key []byte) (v flight.Version, ok bool) {
	if len(key) != 30 {
		return v, false
	}
	return flight.Version{Index: binary.BigEndian.Uint64(key[18:]), Pos: binary.BigEndian.Uint32(key[26:])}, true
}

func bodyKey(id flight.ID, generation uint32, p Part) []byte {
	return append(binary.BigEndian.AppendUint32(ownKey(id, bodyRow), generation), byte(p))
}

// placeKey is the key of a row of an index.
func placeKey(kind byte, at uint64, id flight.ID) []byte {
	b := append(make([]byte, 0, 25), kind)
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
func liveKey(f *flight.Flight) []byte {
	if f == nil || f.State == flight.Absent || f.State.Terminal() {
		return nil
	}
	return placeKey(liveRow, uint64(f.CreatedAt), f.ID)
}

// listKey is the place of a flight in lists; nil: it has none, because it was never submitted, was freed, or is a
// tombstone.
func listKey(f *flight.Flight) []byte {
	if f == nil || f.CreatedAt == 0 || f.State == flight.Absent || f.State == flight.Expired {
		return nil
	}
	return placeKey(listRow, ^uint64(f.CreatedAt), f.ID)
}

// expiryKey is the place of a flight in the index of retentions; nil: it has none.
func expiryKey(f *flight.Flight) []byte {
	if f == nil || !f.State.Terminal() || f.State == flight.Expired {
		return nil
	}
	return placeKey(expiryRow, uint64(f.ExpiresAt()), f.ID)
}

// encodeEvents writes the events of one command as one row: each behind its length.
func encodeEvents(b []byte, events []flight.Event) ([]byte, error) {
	for i := range events {
		record, err := flight.EncodeRecord(&events[i])
		if err != nil {
			return nil, err
		}
		b = binary.AppendUvarint(b, uint64(len(record)))
		b = append(b, record...)
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
