package clusterstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// Duplicates are counted in memory, and the counts are proposed a moment later together with other commands. Counts
// that are not committed are lost when the process dies or this node loses the leadership. No rule reads them.
const (
	// duplicateFlushDelay is how long counts are collected before they are proposed.
	duplicateFlushDelay = 250 * time.Millisecond
	// duplicatePassDelay is the same at a node that passes them on to the leader.
	duplicatePassDelay = 2 * time.Second
	// duplicateFlushFlights is how many flights' counts are proposed at a time. Under a flood of duplicates of ever
	// different keys, the rest wait in memory. The flights with the newest counts go first, because their records are
	// still cached; any other record must be read from the state.
	duplicateFlushFlights = 512
	// oldestEvery: one count in so many of a flush is the oldest one, so that none waits as long as a flood lasts.
	oldestEvery = 16
	// maxCountedFlights is how many flights may have counts in memory, usually 0.3 KiB each, at most 8 KiB with long
	// caller names. Duplicates of further flights are not counted.
	maxCountedFlights = 1 << 16
)

// duplicateCounters holds the counts that are not in the ledger yet.
type duplicateCounters struct {
	source  uint64 // random id of this process
	clock   func() time.Time
	dirty   chan struct{} // signals runDuplicateFlush that there are counts
	flights atomic.Int64  // with a counter in a shard
	shards  [cacheShards]counterShard

	flushLock  chan struct{} // a mutex that respects a context; held during a flush
	lastNumber uint64        // of the last CountDuplicates
	firstShard int           // first shard of the next flush; increases
	sequence   atomic.Uint64 // incremented when counts are taken for a flush, and after the flush
}

type counterShard struct {
	mu      sync.Mutex // guards the fields below
	byID    map[flight.ID]*flightCounter
	order   []flight.ID // the keys of byID, oldest first
	writing map[flight.ID]*flight.CountDuplicates
	_       [16]byte // padding, so that shards do not share a cache line
}

// flightCounter counts the duplicates of one flight. It keeps the last callers in a ring.
type flightCounter struct {
	key         flight.Key
	count       uint64
	callersSeen uint64 // callers ever added to the ring
	first, last flight.Time
	callers     [flight.MaxCallers]flight.Caller
}

func newDuplicateCounters(clock func() time.Time) *duplicateCounters {
	t := &duplicateCounters{clock: clock, dirty: make(chan struct{}, 1), flushLock: make(chan struct{}, 1)}
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never returns an error
	t.source = binary.BigEndian.Uint64(b[:])
	return t
}

// CountDuplicate counts a call that was answered without another effect. It does not wait.
func (s *Store) CountDuplicate(key flight.Key, actor string) {
	s.duplicates.add(key.FlightID(), key, actor)
}

// CountDuplicateOf is CountDuplicate for a caller that knows the flight's id.
func (s *Store) CountDuplicateOf(id flight.ID, key flight.Key, actor string) {
	s.duplicates.add(id, key, actor)
}

// DuplicateStats returns the duplicate statistics of a flight: those in the ledger plus the counts of this process.
func (s *Store) DuplicateStats(id flight.ID) (flight.DuplicateStats, error) {
	for {
		round := s.duplicates.sequence.Load()
		written, waiting := s.duplicates.unwritten(id)
		f, err := s.Flight(id)
		if err != nil || f == nil || f.State == flight.StateExpired {
			return flight.DuplicateStats{}, err
		}
		if s.duplicates.sequence.Load() != round {
			continue // waiting counts may have been committed meanwhile, and would be counted twice
		}
		var sum flight.DuplicateStats
		if f.Duplicates != nil {
			sum = *f.Duplicates
		}
		if written != nil && (sum.LastCount.Source != written.ID.Source || sum.LastCount.Number < written.ID.Number) {
			sum = sum.Add(written.Stats)
		}
		return sum.Add(waiting), nil
	}
}

// unwritten returns the count of a flight that is being written, and the one that waits.
func (dc *duplicateCounters) unwritten(id flight.ID) (written *flight.CountDuplicates, waiting flight.DuplicateStats) {
	s := &dc.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock() // guards the move of a count from byID to writing
	written = s.writing[id]
	if p := s.byID[id]; p != nil {
		waiting = p.stats()
	}
	return written, waiting
}

func (dc *duplicateCounters) add(id flight.ID, key flight.Key, actor string) {
	now := flight.Time(dc.clock().UnixMilli())
	s := &dc.shards[id[0]%cacheShards]
	s.mu.Lock()
	p := s.byID[id]
	if p == nil {
		if p = dc.newCounter(s, id, key); p == nil {
			s.mu.Unlock()
			return
		}
		p.first = now
	}
	p.callers[p.callersSeen%flight.MaxCallers] = flight.Caller{Actor: flight.Sanitize(actor), At: now}
	p.callersSeen++
	p.count++
	p.last = max(p.last, now)
	isFirst := p.count == 1
	s.mu.Unlock()
	if isFirst {
		dc.notify()
	}
}

// newCounter adds a counter for a flight; nil when maxCountedFlights is reached.
func (dc *duplicateCounters) newCounter(s *counterShard, id flight.ID, key flight.Key) *flightCounter {
	if dc.flights.Add(1) > maxCountedFlights {
		dc.flights.Add(-1)
		return nil
	}
	return s.newCounter(id, key)
}

func (s *counterShard) newCounter(id flight.ID, key flight.Key) *flightCounter {
	if s.byID == nil {
		s.byID = make(map[flight.ID]*flightCounter)
	}
	p := &flightCounter{key: key}
	s.byID[id], s.order = p, append(s.order, id)
	return p
}

func (dc *duplicateCounters) notify() {
	select {
	case dc.dirty <- struct{}{}:
	default: // already signalled
	}
}

// stats returns the collected statistics, oldest caller first.
func (c *flightCounter) stats() flight.DuplicateStats {
	n := min(c.callersSeen, flight.MaxCallers)
	sum := flight.DuplicateStats{Count: c.count, First: c.first, Last: c.last, Callers: make([]flight.Caller, 0, n)}
	for i := c.callersSeen - n; i < c.callersSeen; i++ {
		sum.Callers = append(sum.Callers, c.callers[i%flight.MaxCallers])
	}
	return sum
}

// runDuplicateFlush proposes the counts, duplicateFlushDelay after the first one. It ends when the store closes;
// Close waits for it.
func (s *Store) runDuplicateFlush() {
	defer s.workers.Done()
	for {
		select {
		case <-s.duplicates.dirty:
		case <-s.closing:
			return
		}
		delay := duplicateFlushDelay
		if s.leading.Load() == nil {
			delay = duplicatePassDelay
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
		if more := s.flushDuplicates(context.Background()); more {
			s.duplicates.notify()
		}
	}
}

// drainDuplicates proposes all counts while that makes progress and ctx lasts.
func (s *Store) drainDuplicates(ctx context.Context) {
	for left := s.duplicates.flights.Load(); left > 0 && ctx.Err() == nil; {
		s.flushDuplicates(ctx)
		now := s.duplicates.flights.Load()
		if now >= left {
			return
		}
		left = now
	}
}

// flushDuplicates proposes up to duplicateFlushFlights counts, and reports whether there are more.
//
// If the process dies before a CountDuplicates is committed, its duplicates are not counted.
func (s *Store) flushDuplicates(ctx context.Context) (more bool) {
	t := s.duplicates
	select {
	case t.flushLock <- struct{}{}:
	case <-ctx.Done():
		return true
	}
	defer func() { <-t.flushLock }()
	passes := s.leading.Load() == nil && s.cfg.Peers != nil && s.cfg.Peers.PassDuplicates != nil
	if !passes && (s.leading.Load() == nil || s.disk.low.Load()) {
		return t.flights.Load() > 0
	}
	t.sequence.Add(1)
	defer t.sequence.Add(1)
	batch := t.takeBatch()
	if passes {
		if len(batch) > 0 && !s.cfg.Peers.PassDuplicates(ctx, slices.Collect(maps.Values(batch))) {
			for id, c := range batch {
				t.requeue(id, c)
			}
		}
		t.clearWriting()
		return t.flights.Load() > 0
	}
	proposals := make(map[flight.ID]*proposal, len(batch))
	for id, c := range batch {
		// Load records that are not cached here, where no other caller waits for the read.
		_, _ = s.fsm.read(id) // the fsm reports an error of this read
		data, err := s.encode(c)
		if err != nil {
			continue // this count can never be encoded
		}
		p := &proposal{command: c, data: data, done: make(chan error, 1)}
		if s.batcher.enqueue(p) == nil {
			proposals[id] = p
		}
	}
	var back []flight.ID
	for id, p := range proposals {
		_, err := s.batcher.await(ctx, p)
		if errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnavailable) {
			back = append(back, id) // definitely not committed; after any other error it may be, and is not counted again
		}
	}
	for _, id := range back {
		t.requeue(id, batch[id])
	}
	t.clearWriting()
	return t.flights.Load() > 0
}

// takeBatch takes up to duplicateFlushFlights counts, a share from each shard. They stay readable in writing.
func (dc *duplicateCounters) takeBatch() map[flight.ID]*flight.CountDuplicates {
	batch := make(map[flight.ID]*flight.CountDuplicates)
	dc.firstShard++ // so that no shard is always the last, which gets the remainder
	for i := range dc.shards {
		share := (duplicateFlushFlights - len(batch)) / (cacheShards - i)
		dc.takeFromShard(&dc.shards[(dc.firstShard+i)%cacheShards], batch, share)
	}
	return batch
}

// takeFromShard moves up to limit counts of a shard into the batch.
func (dc *duplicateCounters) takeFromShard(s *counterShard, batch map[flight.ID]*flight.CountDuplicates, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = min(limit, len(s.order))
	if limit > 0 && s.writing == nil {
		s.writing = make(map[flight.ID]*flight.CountDuplicates)
	}
	for range limit {
		dc.lastNumber++
		id := s.nextFlight(dc.lastNumber%oldestEvery == 0)
		p := s.byID[id]
		delete(s.byID, id)
		c := &flight.CountDuplicates{Key: p.key, ID: flight.CountID{Source: dc.source, Number: dc.lastNumber}, Stats: p.stats()}
		batch[id], s.writing[id] = c, c
	}
	dc.flights.Add(-int64(limit))
}

// nextFlight removes the flight to be written next from order, which must not be empty.
func (s *counterShard) nextFlight(oldest bool) (id flight.ID) {
	last := len(s.order) - 1
	if oldest {
		id, s.order = s.order[0], s.order[1:]
	} else {
		id, s.order = s.order[last], s.order[:last]
	}
	return id
}

// clearWriting ends a flush.
func (dc *duplicateCounters) clearWriting() {
	for i := range dc.shards {
		s := &dc.shards[i]
		s.mu.Lock()
		s.writing = nil
		s.mu.Unlock()
	}
}

// AddDuplicates adds counts that another node has passed on. Those of too many flights are dropped.
func (s *Store) AddDuplicates(counts []*flight.CountDuplicates) {
	for _, c := range counts {
		id := c.Key.FlightID()
		shard := &s.duplicates.shards[id[0]%cacheShards]
		shard.mu.Lock()
		if s.duplicates.flights.Load() < maxCountedFlights {
			s.duplicates.merge(shard, id, c)
		}
		shard.mu.Unlock()
	}
	s.duplicates.notify()
}

// requeue adds a count that was not committed to the waiting ones. It may exceed maxCountedFlights.
func (dc *duplicateCounters) requeue(id flight.ID, c *flight.CountDuplicates) {
	s := &dc.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, id)
	dc.merge(s, id, c)
}

// merge adds an older count to the waiting ones. The caller holds the lock of the shard.
func (dc *duplicateCounters) merge(s *counterShard, id flight.ID, c *flight.CountDuplicates) {
	p := s.byID[id]
	if p == nil {
		dc.flights.Add(1)
		p = s.newCounter(id, c.Key)
	}
	sum := c.Stats.Add(p.stats())
	*p = flightCounter{key: c.Key, count: sum.Count, callersSeen: uint64(len(sum.Callers)), first: sum.First, last: sum.Last}
	copy(p.callers[:], sum.Callers)
}
