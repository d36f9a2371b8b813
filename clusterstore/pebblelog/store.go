package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/internal/gate"
)

// errNotFound is how raft knows that a stable value was never set: it compares the text.
var errNotFound = errors.New("not found")

// ErrNewer is returned for an entry that a newer version of this store wrote.
var ErrNewer = errors.New("pebblelog: entry written by a newer version")

// ErrDamaged is returned for what was not written so.
var ErrDamaged = errors.New("pebblelog: damaged")

// ErrClosed is returned by everything that is asked of a closed store.
var ErrClosed = errors.New("pebblelog: the store is closed")

// storeFormat is the version of the rows as a whole.
const storeFormat = 1

// The kinds of rows.
const (
	formatRow    = 'v' // one row: the format
	logPrefix    = 'l' // followed by the index, 8 bytes, big endian
	stablePrefix = 's' // followed by raft's name of the value
)

// currentTerm is raft's name of the stable value that holds its term.
const currentTerm = "CurrentTerm"

// Store is raft's log and stable store. Its methods may be called concurrently, as raft does: one writer of entries,
// many readers.
type Store struct {
	db       *DB
	mu       sync.Mutex // serialises writers of entries, so that first and last follow the database
	users    gate.Gate  // of db
	first    atomic.Uint64
	last     atomic.Uint64
	appended atomic.Uint64
}

// Options are what a Store wants from Pebble beyond what the process decides (file system, cache, logger).
func Options(o *pebble.Options) *pebble.Options {
	o.FormatMajorVersion = pebble.FormatNewest // write-ahead log chunks that tell a torn tail from damage behind a sync
	o.L0CompactionThreshold = 8
	o.L0StopWritesThreshold = 64
	for i := range o.Levels {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression } // soon deleted
	}
	return o
}

// Open opens or creates the store in dir. The caller closes it.
func Open(dir string, o *pebble.Options) (*Store, error) {
	db, err := OpenDB(dir, o)
	if err != nil {
		return nil, fmt.Errorf("pebblelog: open %s: %w", dir, err)
	}
	s := &Store{db: db}
	if err := errors.Join(s.checkFormat(), s.findEnds()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// checkFormat refuses a store that a newer version wrote, and marks a new one. Flushing the mark gives the new store
// a write-ahead log of the newest kind, which tells a torn tail from damage behind a sync; Pebble's first one is older.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get([]byte{formatRow})
	if errors.Is(err, pebble.ErrNotFound) {
		if err := s.db.Set([]byte{formatRow}, []byte{storeFormat}, pebble.Sync); err != nil {
			return fmt.Errorf("pebblelog: mark a new store: %w", err)
		}
		return s.db.Flush(context.Background())
	}
	if err != nil {
		return fmt.Errorf("pebblelog: read the format: %w", err)
	}
	if len(value) != 1 || value[0] > storeFormat {
		err = fmt.Errorf("%w: store of format %v", ErrNewer, value)
	}
	return errors.Join(err, closer.Close())
}

// Close waits for whoever is inside, and closes the database. It is not enough that raft was shut down: its gauge of
// the oldest entry's age reads the log every ten seconds from a goroutine that nobody waits for, and Pebble answers
// a read that outlives it with a leak, one that comes later with a panic.
func (s *Store) Close() error {
	if !s.users.Close() {
		return ErrClosed
	}
	return s.db.Close()
}

// Appended is how many bytes of entries were stored since Open.
func (s *Store) Appended() uint64 { return s.appended.Load() }

// DiskBytes is how much of the disk the store takes; 0 once it is closed.
func (s *Store) DiskBytes() uint64 {
	if !s.users.Enter() {
		return 0
	}
	defer s.users.Leave()
	return s.db.Metrics().DiskSpaceUsage()
}

// Refused is what the system said where it refused the store a table in the last minute; nil: it did not. Once there are as many
// tables of recent writes as memory has room for, every write waits for it.
func (s *Store) Refused() error { return s.db.Refused() }

// FirstIndex is the index of the oldest entry, 0 when there is none.
func (s *Store) FirstIndex() (uint64, error) { return s.first.Load(), nil }

// LastIndex is the index of the newest entry, 0 when there is none.
func (s *Store) LastIndex() (uint64, error) { return s.last.Load(), nil }

// GetLog reads one entry; raft.ErrLogNotFound when there is none with this index.
func (s *Store) GetLog(index uint64, entry *raft.Log) error {
	if !s.users.Enter() {
		return ErrClosed
	}
	defer s.users.Leave()
	value, closer, err := s.db.Get(logKey(index))
	if errors.Is(err, pebble.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		return fmt.Errorf("pebblelog: read entry %d: %w", index, err)
	}
	err = decodeEntry(value, entry)
	entry.Index = index
	return errors.Join(err, closer.Close())
}

// Scan reads the entries from..LastIndex in order and stops at the first error, also that of a gap. It is how a start
// finds a damaged log before raft does, which could only panic.
func (s *Store) Scan(from uint64, visit func(*raft.Log) error) (err error) {
	if !s.users.Enter() {
		return ErrClosed
	}
	defer s.users.Leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from), UpperBound: []byte{logPrefix + 1}})
	if err != nil {
		return fmt.Errorf("pebblelog: scan: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	want := from
	for valid := it.First(); valid; valid = it.Next() {
		index := binary.BigEndian.Uint64(it.Key()[1:])
		if index != want {
			return fmt.Errorf("%w: entry %d is missing, the next one is %d", ErrDamaged, want, index)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("pebblelog: read entry %d: %w", index, err)
		}
		entry := raft.Log{Index: index}
		if err := decodeEntry(value, &entry); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		if err := visit(&entry); err != nil {
			return err
		}
		want++
	}
	return it.Error()
}

// StoreLog stores one entry; durable when it returns.
func (s *Store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries with one write and one sync; durable when it returns. After an error they may be there or
// not.
func (s *Store) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	if !s.users.Enter() {
		return ErrClosed
	}
	defer s.users.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.db.NewBatchWithSize(batchSize(entries))
	defer func() { _ = batch.Close() }() // a closed batch frees memory; its error says nothing about the commit
	var size uint64
	for _, e := range entries {
		op := batch.SetDeferred(9, encodedLen(e))
		putLogKey(op.Key, e.Index)
		encodeEntry(op.Value, e)
		size += uint64(len(op.Value))
		if err := op.Finish(); err != nil {
			return fmt.Errorf("pebblelog: store entry %d: %w", e.Index, err)
		}
	}
	if err := batch.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("pebblelog: store entries %d to %d: %w", entries[0].Index, entries[len(entries)-1].Index, err)
	}
	s.appended.Add(size)
	s.grow(entries[0].Index, entries[len(entries)-1].Index)
	return nil
}

// grow moves the ends after a write of entries from..to.
func (s *Store) grow(from, to uint64) {
	if first := s.first.Load(); first == 0 || from < first {
		s.first.Store(from)
	}
	if to > s.last.Load() {
		s.last.Store(to)
	}
}

// DeleteRange deletes the entries from..to, both included; durable when it returns.
func (s *Store) DeleteRange(from, to uint64) error {
	if !s.users.Enter() {
		return ErrClosed
	}
	defer s.users.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.db.DeleteRange(logKey(from), logKey(to+1), pebble.Sync); err != nil {
		return fmt.Errorf("pebblelog: delete entries %d to %d: %w", from, to, err)
	}
	return s.findEnds()
}

// Scrub writes the tables anew that hold deleted entries, so that these leave the disk.
func (s *Store) Scrub(ctx context.Context) error {
	if !s.users.Enter() {
		return ErrClosed
	}
	defer s.users.Leave()
	if err := s.db.Flush(ctx); err != nil {
		return fmt.Errorf("pebblelog: scrub: %w", err)
	}
	if err := s.db.Compact(ctx, logKey(0), []byte{logPrefix + 1}, false); err != nil {
		return fmt.Errorf("pebblelog: scrub: %w", err)
	}
	return nil
}

// findEnds reads the first and last index from the database.
func (s *Store) findEnds() (err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{logPrefix}, UpperBound: []byte{logPrefix + 1}})
	if err != nil {
		return fmt.Errorf("pebblelog: find the log's ends: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var first, last uint64
	if it.First() {
		first = binary.BigEndian.Uint64(it.Key()[1:])
	}
	if it.Last() {
		last = binary.BigEndian.Uint64(it.Key()[1:])
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("pebblelog: find the log's ends: %w", err)
	}
	s.first.Store(first)
	s.last.Store(last)
	return nil
}
