package pebblelog

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// An entry is stored as version, type, term, time of append, length of the extensions, extensions, data.
const (
	entryVersion = 1
	entryFixed   = 1 + 1 + 8 + 8 + 4
)

var errShortEntry = fmt.Errorf("%w: entry is too short", ErrCorrupt)

func logKey(index uint64) []byte {
	key := make([]byte, 9)
	putLogKey(key, index)
	return key
}

func putLogKey(key []byte, index uint64) {
	key[0] = logPrefix
	binary.BigEndian.PutUint64(key[1:], index)
}

func encodedLen(e *raft.Log) int { return entryFixed + len(e.Extensions) + len(e.Data) }

func batchSize(entries []*raft.Log) int {
	size := 64
	for _, e := range entries {
		size += encodedLen(e) + 32
	}
	return size
}

func encodeEntry(b []byte, e *raft.Log) {
	b[0], b[1] = entryVersion, byte(e.Type)
	binary.BigEndian.PutUint64(b[2:], e.Term)
	var at int64 // 0 stores the zero time, for which UnixNano is undefined
	if !e.AppendedAt.IsZero() {
		at = e.AppendedAt.UnixNano()
	}
	binary.BigEndian.PutUint64(b[10:], uint64(at))
	binary.BigEndian.PutUint32(b[18:], uint32(len(e.Extensions)))
	n := copy(b[entryFixed:], e.Extensions)
	copy(b[entryFixed+n:], e.Data)
}

// decodeEntry copies the entry out of b, which Pebble reuses.
func decodeEntry(b []byte, e *raft.Log) error {
	if len(b) == 0 {
		return errShortEntry
	}
	if b[0] != entryVersion {
		return fmt.Errorf("%w: version %d", ErrNewer, b[0])
	}
	if len(b) < entryFixed {
		return errShortEntry
	}
	extensions := binary.BigEndian.Uint32(b[18:])
	if uint64(extensions) > uint64(len(b)-entryFixed) {
		return errShortEntry
	}
	e.Type = raft.LogType(b[1])
	e.Term = binary.BigEndian.Uint64(b[2:])
	e.AppendedAt = time.Time{}
	if at := int64(binary.BigEndian.Uint64(b[10:])); at != 0 {
		e.AppendedAt = time.Unix(0, at)
	}
	rest := append([]byte(nil), b[entryFixed:]...)
	e.Extensions, e.Data = nil, rest[extensions:]
	if extensions > 0 {
		e.Extensions = rest[:extensions:extensions]
	}
	return nil
}
