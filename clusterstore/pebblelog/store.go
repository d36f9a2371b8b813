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

// errNotFound says that a stable value was never set. Raft compares the text.
var errNotFound = errors.New("not found")

// ErrNewer is returned for an entry that a newer version of this store wrote.
var ErrNewer = errors.New("pebblelog: entry written by a newer version")

// ErrCorrupt is returned for an entry, a number or a log that this package cannot have written.
var ErrCorrupt = errors.New("pebblelog: corrupt")

// ErrClosed is returned by all methods of a closed store.
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
	db         *DB
	mu         sync.Mutex    // held by writers of entries, so that first and last follow the order of writes in db
	inFlight   gate.Gate     // counts the calls that use db; Close waits for them
	firstIndex atomic.Uint64 // index of the oldest entry; 0: the log is empty
	lastIndex  atomic.Uint64 // index of the newest entry
	appended   atomic.Uint64 // bytes of entries since Open
	sizes      sizes         // guarded by mu
}

// Options adds the settings of a Store to o. The caller sets the rest: file system, cache, logger.
func Options(o *pebble.Options) *pebble.Options {
	o.FormatMajorVersion = pebble.FormatNewest // its log chunks distinguish a torn tail from corruption of synced data
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
	if err := errors.Join(s.checkFormat(), s.loadRange(), s.loadSizes()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// checkFormat returns ErrNewer for a store that a newer version wrote, and writes the format row of a new store.
//
// The flush starts a write-ahead log of the newest format, which distinguishes a torn tail from corruption of synced
// data. The first log that Pebble creates has an older format.
func (s *Store) checkFormat() error {
	value, closer, err := s.db.Get([]byte{formatRow})
	if errors.Is(err, pebble.ErrNotFound) {
		if err := s.db.Set([]byte{formatRow}, []byte{storeFormat}, pebble.Sync); err != nil {
			return fmt.Errorf("pebblelog: write the format: %w", err)
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

// Close waits for the calls in flight and closes the database. ErrClosed when it was closed before.
//
// A raft that has shut down may still read: a goroutine that raft does not wait for reads the age of the oldest entry
// every ten seconds. A read during Pebble's Close leaks, and a read after it panics.
func (s *Store) Close() error {
	if !s.inFlight.Close() {
		return ErrClosed
	}
	return s.db.Close()
}

// Appended returns the bytes of entries stored since Open.
func (s *Store) Appended() uint64 { return s.appended.Load() }

// DiskBytes returns the disk space that the store uses; 0 once it is closed.
func (s *Store) DiskBytes() uint64 {
	if !s.inFlight.Enter() {
		return 0
	}
	defer s.inFlight.Leave()
	return s.db.Metrics().DiskSpaceUsage()
}

// TableError returns the last error of the operating system if a table write failed in the last minute, else nil. While
// tables cannot be written, memtables pile up, and at Pebble's limit every write waits.
func (s *Store) TableError() error { return s.db.TableError() }

// FirstIndex returns the index of the oldest entry, or 0 if the log is empty.
func (s *Store) FirstIndex() (uint64, error) { return s.firstIndex.Load(), nil }

// LastIndex returns the index of the newest entry, or 0 if the log is empty.
func (s *Store) LastIndex() (uint64, error) { return s.lastIndex.Load(), nil }

// GetLog reads one entry. Errors: raft.ErrLogNotFound when no entry has this index, ErrCorrupt, ErrNewer, ErrClosed.
func (s *Store) GetLog(index uint64, entry *raft.Log) error {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
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

// Scan calls visit for the entries from..LastIndex in order and stops at the first error. A missing entry is
// ErrCorrupt. A start scans the log because raft panics on a corrupt entry.
func (s *Store) Scan(from uint64, visit func(*raft.Log) error) (err error) {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from), UpperBound: []byte{logPrefix + 1}})
	if err != nil {
		return fmt.Errorf("pebblelog: scan: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	want := from
	for valid := it.First(); valid; valid = it.Next() {
		index := binary.BigEndian.Uint64(it.Key()[1:])
		if index != want {
			return fmt.Errorf("%w: entry %d is missing, the next one is %d", ErrCorrupt, want, index)
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

// StoreLog stores one entry, which is durable when StoreLog returns.
func (s *Store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries with one write and one sync; they are durable when it returns. After an error, or if the
// process dies before it returns, all or none of the entries are stored.
func (s *Store) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.db.NewBatchWithSize(batchSize(entries))
	defer func() { _ = batch.Close() }() // it frees memory; its error says nothing about the commit
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
	s.sizes.add(entries[0].Index, entries[len(entries)-1].Index, size)
	s.extendRange(entries[0].Index, entries[len(entries)-1].Index)
	return nil
}

// extendRange adds the written entries from..to to the range first..last. s.mu is held.
func (s *Store) extendRange(from, to uint64) {
	if first := s.firstIndex.Load(); first == 0 || from < first {
		s.firstIndex.Store(from)
	}
	if to > s.lastIndex.Load() {
		s.lastIndex.Store(to)
	}
}

// DeleteRange deletes the entries from..to, both included. The deletion is durable when it returns.
func (s *Store) DeleteRange(from, to uint64) error {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.db.DeleteRange(logKey(from), logKey(to+1), pebble.Sync); err != nil {
		return fmt.Errorf("pebblelog: delete entries %d to %d: %w", from, to, err)
	}
	if err := s.loadRange(); err != nil {
		return err
	}
	s.sizes.cut(s.firstIndex.Load(), s.lastIndex.Load())
	return nil
}

// IsMonotonic makes raft delete the whole log when it has installed a snapshot of the leader, so that the log has no hole
// before the entries that follow. This store also works with a hole: a process may die before that deletion.
func (s *Store) IsMonotonic() bool { return true }

// NextIndex returns the index of the first entry from an index on, or 0 if there is none.
func (s *Store) NextIndex(from uint64) (index uint64, err error) {
	if !s.inFlight.Enter() {
		return 0, ErrClosed
	}
	defer s.inFlight.Leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: logKey(from), UpperBound: []byte{logPrefix + 1}})
	if err != nil {
		return 0, fmt.Errorf("pebblelog: find the entry after %d: %w", from, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if it.First() {
		index = binary.BigEndian.Uint64(it.Key()[1:])
	}
	return index, it.Error()
}

// Scrub rewrites the tables that hold deleted entries, so that the entries are no longer on disk.
func (s *Store) Scrub(ctx context.Context) error {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	if err := s.db.Flush(ctx); err != nil {
		return fmt.Errorf("pebblelog: scrub: %w", err)
	}
	if err := s.db.Compact(ctx, logKey(0), []byte{logPrefix + 1}, false); err != nil {
		return fmt.Errorf("pebblelog: scrub: %w", err)
	}
	return nil
}

// loadRange reads the first and last index from the database. s.mu is held, or the store is being opened.
func (s *Store) loadRange() (err error) {
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
	s.firstIndex.Store(first)
	s.lastIndex.Store(last)
	return nil
}
