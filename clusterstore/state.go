package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/fxamacker/cbor/v2"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// meta records how far the log was applied to a state, and the owner of the state. It is written in the same batch as
// the effects, so after a crash it says exactly which effects are stored.
type meta struct {
	Level       uint32                         `cbor:"1,keyasint"` // the feature level: a node rejects rows of a level that it does not read
	Cluster     string                         `cbor:"2,keyasint"`
	Node        string                         `cbor:"3,keyasint"`
	Applied     uint64                         `cbor:"4,keyasint"` // index of the last entry whose effects are stored
	Term        uint64                         `cbor:"5,keyasint"` // term of that entry
	Config      []byte                         `cbor:"6,keyasint"` // raft's configuration: the cluster's members
	ConfigIndex uint64                         `cbor:"7,keyasint"` // index of the entry that set Config
	Counts      [flight.StateExpired + 1]int64 `cbor:"8,keyasint"` // flights by state
	Deleted     int64                          `cbor:"9,keyasint"` // deleted flights that are still in the key filter
}

// state is the Pebble database with the rows. Restore replaces the database while readers use it.
type state struct {
	cfg     *Config
	options func() *pebble.Options

	mu   sync.RWMutex // guards db and name; held for reading during a read of the database
	db   *pebblelog.DB
	name string // of its directory, as in the file CURRENT
}

// stateOptions sets the Pebble options for the state's access pattern.
func stateOptions(o *pebble.Options) *pebble.Options {
	o.FormatMajorVersion = pebble.FormatNewest
	o.FS = noReuseFS{o.FS}
	o.Comparer = rowComparer()
	o.L0CompactionThreshold = 4
	o.L0StopWritesThreshold = 64
	o.LBaseMaxBytes = 64 << 20
	o.MaxOpenFiles = 4096
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most commands look up a key that was never used
		o.Levels[i].BlockSize = 4 << 10                   // a replay reads one block; the index of ten million flights still fits into the cache
		o.Levels[i].IndexBlockSize = 256 << 10            // one index level; a second one would add a read to each lookup
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	o.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression } // soon compacted again
	return o
}

func openState(cfg *Config, options func() *pebble.Options) (*state, error) {
	s := &state{cfg: cfg, options: options}
	name, err := currentState(cfg)
	if err != nil {
		return nil, err
	}
	s.name = name
	s.db, err = pebblelog.OpenDB(cfg.FS.PathJoin(cfg.Dir, name), options())
	if err != nil {
		return nil, storageError("open the state", err)
	}
	return s, nil
}

func (s *state) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := errors.Join(s.db.Flush(context.Background()), s.db.Close())
	s.db = nil
	return err
}

// get reads one row and calls use with its value, which use must not retain. It returns false when there is no such
// row.
func (s *state) get(key []byte, use func([]byte) error) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return false, ErrClosed
	}
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("clusterstore: read a row of kind %c: %w", key[0], err)
	}
	return true, errors.Join(use(value), closer.Close())
}

// scan visits the rows in [from, to) until visit returns false. visit must not retain the bytes.
func (s *state) scan(from, to []byte, visit func(key, value []byte) (more bool, err error)) error {
	return s.visit(from, to, (*pebble.Iterator).First, (*pebble.Iterator).Next, visit)
}

// scanBack is scan in reverse order.
func (s *state) scanBack(from, to []byte, visit func(key, value []byte) (more bool, err error)) error {
	return s.visit(from, to, (*pebble.Iterator).Last, (*pebble.Iterator).Prev, visit)
}

func (s *state) visit(from, to []byte, start, step func(*pebble.Iterator) bool, visit func(key, value []byte) (more bool, err error)) (err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("clusterstore: scan rows of kind %c: %w", from[0], err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := start(it); valid; valid = step(it) {
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("clusterstore: scan rows of kind %c: %w", from[0], err)
		}
		more, err := visit(it.Key(), value)
		if err != nil || !more {
			return err
		}
	}
	return it.Error()
}

// record reads a flight's current record with its duplicate statistics, or nil if there is none. Unlike Get it also
// uses the filters of the lowest level, which holds nearly all rows.
func (s *state) record(id flight.ID) (r *record, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, ErrClosed
	}
	it, err := s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, fmt.Errorf("clusterstore: read a record: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var room [maxRowKey]byte
	key := duplicatesKey(room[:0], id)
	if !it.SeekPrefixGE(key) {
		return nil, it.Error()
	}
	var stats *flight.DuplicateStats
	if bytes.Equal(it.Key(), key) {
		if stats, err = decodeDuplicates(it); err != nil || !it.Next() {
			return nil, errors.Join(err, it.Error())
		}
	}
	if !bytes.Equal(it.Key(), recordKey(room[:0], id)) {
		return nil, nil
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	if r, err = decodeRecord(value); err == nil {
		r.flight.Duplicates = stats
	}
	return r, err
}

// records visits the records of many flights, without their duplicate statistics. ids must be sorted; missing flights
// are skipped.
func (s *state) records(ids []flight.ID, visit func(*record)) (err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: kindKey(flightRows), UpperBound: kindKey(flightRows + 1)})
	if err != nil {
		return fmt.Errorf("clusterstore: read records: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var room [maxRowKey]byte
	for _, id := range ids {
		key := recordKey(room[:0], id)
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			if err := it.Error(); err != nil {
				return err
			}
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		r, err := decodeRecord(value)
		if err != nil {
			return err
		}
		visit(r)
	}
	return nil
}

func decodeDuplicates(it *pebble.Iterator) (*flight.DuplicateStats, error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	stats := new(flight.DuplicateStats)
	return stats, flight.DecodeRecord(value, stats)
}

// loadedState is everything that the fsm loads from a state.
type loadedState struct {
	published
	filter    *keyFilter
	sessions  *flight.Sessions
	due       *flight.Due
	documents *flight.Documents
	listed    map[string]int64
}

func (s *state) load() (l loadedState, err error) {
	if l.meta, err = s.loadMeta(); err != nil {
		return l, err
	}
	if l.header, err = s.loadHeader(); err != nil {
		return l, err
	}
	if l.filter, err = loadKeyFilter(s, &l.meta); err != nil {
		return l, err
	}
	if l.sessions, l.due, err = s.loadLive(); err != nil {
		return l, err
	}
	if l.documents, err = s.loadDocuments(); err != nil {
		return l, err
	}
	l.documentsVersion = flight.Version{Index: l.meta.Applied} // a restored snapshot may lack a document that was the newest
	l.listed, err = s.loadListed()
	return l, err
}

// loadMeta reads the meta row; the zero meta of a new state.
func (s *state) loadMeta() (m meta, err error) {
	_, err = s.get(kindKey(metaRow), func(b []byte) error { return decodeMeta(b, s.cfg.Limits.levels.Max, &m) })
	return m, err
}

func (s *state) loadHeader() (h flight.Header, err error) {
	_, err = s.get(kindKey(headerRow), func(b []byte) error { return flight.DecodeRecord(b, &h) })
	return h, err
}

// decodeMeta decodes a meta row. It returns ErrNewer for a state above maxLevel.
func decodeMeta(b []byte, maxLevel uint32, m *meta) error {
	if err := cbor.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: decode the state's meta row: %w", ErrDamaged, err)
	}
	if m.Level > maxLevel {
		return fmt.Errorf("%w: state of feature level %d, this version reads up to %d", ErrNewer, m.Level, maxLevel)
	}
	return nil
}

func encodeMeta(m *meta) ([]byte, error) { return cbor.Marshal(m) }
