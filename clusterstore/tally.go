package clusterstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// Duplicates are counted in memory, and the counts are proposed a moment later together with other commands. Counts
// that are not committed are lost when the process dies or this node loses the leadership. No rule reads them.
const (
	// duplicateFlushDelay is how long counts are collected before they are proposed.
	tallyPause = 250 * time.Millisecond
	// duplicateFlushFlights is how many flights' counts are proposed at a time. Under a flood of duplicates of ever
	// different keys, the rest wait in memory. The flights with the newest counts go first, because their records are
	// still cached; any other record must be read from the state.
	tallyBatch = 512
	// oldestEvery: one count in so many of a flush is the oldest one, so that none waits as long as a flood lasts.
	tallyOldest = 16
	// maxCountedFlights is how many flights may have counts in memory, usually 0.3 KiB each, at most 8 KiB with long
	// caller names. Duplicates of further flights are not counted.
	tallyRoom = 1 << 16
)

// duplicateCounters holds the counts that are not in the ledger yet.
type tallies struct {
	source  uint64 // random id of this process
	clock   func() time.Time
	dirty   chan struct{} // signals runDuplicateFlush that there are counts
	flights atomic.Int64  // with a counter in a shard
	shards  [cacheShards]tallyShard

	writer chan struct{} // a mutex that respects a context; held during a flush
	number uint64        // of the last Count
	turn   int           // first shard of the next flush; increases
	round  atomic.Uint64 // incremented when counts are taken for a flush, and after the flush
}

type tallyShard struct {
	mu      sync.Mutex // guards the fields below
	byID    map[flight.ID]*pendingTally
	order   []flight.ID // the keys of byID, oldest first
	writing map[flight.ID]*flight.Count
	_       [16]byte // padding, so that shards do not share a cache line
}

// flightCounter counts the duplicates of one flight. It keeps the last callers in a ring.
type pendingTally struct {
	key         flight.Key
	count       uint64
	named       uint64 // callers ever added to the ring
	first, last flight.Time
	callers     [flight.MaxCallers]flight.Caller
}

func newTallies(clock func() time.Time) *tallies {
	t := &tallies{clock: clock, dirty: make(chan struct{}, 1), writer: make(chan struct{}, 1)}
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never returns an error
	t.source = binary.BigEndian.Uint64(b[:])
	return t
}

// CountDuplicate counts a call that was answered without another effect. It does not wait.
func (s *Store) Duplicate(key flight.Key, who string) { s.tallies.add(key.FlightID(), key, who) }

// CountDuplicateOf is CountDuplicate for a caller that knows the flight's id.
func (s *Store) DuplicateOf(id flight.ID, key flight.Key, who string) { s.tallies.add(id, key, who) }

// DuplicateStats returns the duplicate statistics of a flight: those in the ledger plus the counts of this process.
func (s *Store) Tally(id flight.ID) (flight.Tally, error) {
	for {
		round := s.tallies.round.Load()
		written, waiting := s.tallies.find(id)
		f, err := s.Flight(id)
		if err != nil || f == nil || f.State == flight.Expired {
			return flight.Tally{}, err
		}
		if s.tallies.round.Load() != round {
			continue // waiting counts may have been committed meanwhile, and would be counted twice
		}
		var sum flight.Tally
		if f.Duplicates != nil {
			sum = *f.Duplicates
		}
		if written != nil && (sum.Told.Source != written.Telling.Source || sum.Told.Number < written.Telling.Number) {
			sum = sum.Plus(written.Tally)
		}
		return sum.Plus(waiting), nil
	}
}

// unwritten returns the count of a flight that is being written, and the one that waits.
func (t *tallies) find(id flight.ID) (written *flight.Count, waiting flight.Tally) {
	s := &t.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock() // guards the move of a count from byID to writing
	written = s.writing[id]
	if p := s.byID[id]; p != nil {
		waiting = p.tally()
	}
	return written, waiting
}

func (t *tallies) add(id flight.ID, key flight.Key, who string) {
	now := flight.Time(t.clock().UnixMilli())
	s := &t.shards[id[0]%cacheShards]
	s.mu.Lock()
	p := s.byID[id]
	if p == nil {
		if p = t.begin(s, id, key); p == nil {
			s.mu.Unlock()
			return
		}
		p.first = now
	}
	p.callers[p.named%flight.MaxCallers] = flight.Caller{Who: flight.Text(who), At: now}
	p.named++
	p.count++
	p.last = max(p.last, now)
	fresh := p.count == 1
	s.mu.Unlock()
	if fresh {
		t.mark()
	}
}

// newCounter adds a counter for a flight; nil when maxCountedFlights is reached.
func (t *tallies) begin(s *tallyShard, id flight.ID, key flight.Key) *pendingTally {
	if t.flights.Add(1) > tallyRoom {
		t.flights.Add(-1)
		return nil
	}
	return s.begin(id, key)
}

func (s *tallyShard) begin(id flight.ID, key flight.Key) *pendingTally {
	if s.byID == nil {
		s.byID = make(map[flight.ID]*pendingTally)
	}
	p := &pendingTally{key: key}
	s.byID[id], s.order = p, append(s.order, id)
	return p
}

func (t *tallies) mark() {
	select {
	case t.dirty <- struct{}{}:
	default: // already signalled
	}
}

// stats returns the collected statistics, oldest caller first.
func (p *pendingTally) tally() flight.Tally {
	n := min(p.named, flight.MaxCallers)
	sum := flight.Tally{Count: p.count, First: p.first, Last: p.last, Callers: make([]flight.Caller, 0, n)}
	for i := p.named - n; i < p.named; i++ {
		sum.Callers = append(sum.Callers, p.callers[i%flight.MaxCallers])
	}
	return sum
}

// runDuplicateFlush proposes the counts, duplicateFlushDelay after the first one. It ends when the store closes;
// Close waits for it.
func (s *Store) writeTallies() {
	defer s.workers.Done()
	for {
		select {
		case <-s.tallies.dirty:
		case <-s.closing:
			return
		}
		timer := time.NewTimer(tallyPause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return
		}
		if more := s.flushTallies(context.Background()); more {
			s.tallies.mark()
		}
	}
}

// drainDuplicates proposes all counts while that makes progress and ctx lasts.
func (s *Store) drainTallies(ctx context.Context) {
	for left := s.tallies.flights.Load(); left > 0 && ctx.Err() == nil; {
		s.flushTallies(ctx)
		now := s.tallies.flights.Load()
		if now >= left {
			return
		}
		left = now
	}
}

// flushDuplicates proposes up to duplicateFlushFlights counts, and reports whether there are more.
//
// If the process dies before a Count is committed, its duplicates are not counted.
func (s *Store) flushTallies(ctx context.Context) (more bool) {
	t := s.tallies
	select {
	case t.writer <- struct{}{}:
	case <-ctx.Done():
		return true
	}
	defer func() { <-t.writer }()
	if s.leading.Load() == nil || s.disk.low.Load() {
		return t.flights.Load() > 0
	}
	t.round.Add(1)
	defer t.round.Add(1)
	batch := t.take()
	proposals := make(map[flight.ID]*proposal, len(batch))
	for id, c := range batch {
		// Load records that are not cached here, where no other caller waits for the read.
		_, _ = s.machine.read(id) // the fsm reports an error of this read
		data, err := s.encode(c)
		if err != nil {
			continue // this count can never be encoded
		}
		p := &proposal{command: c, data: data, done: make(chan error, 1)}
		if s.packer.enqueue(p) == nil {
			proposals[id] = p
		}
	}
	var back []flight.ID
	for id, p := range proposals {
		_, err := s.packer.await(ctx, p)
		if errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnavailable) {
			back = append(back, id) // definitely not committed; after any other error it may be, and is not counted again
		}
	}
	for _, id := range back {
		t.giveBack(id, batch[id])
	}
	t.written()
	return t.flights.Load() > 0
}

// takeBatch takes up to duplicateFlushFlights counts, a share from each shard. They stay readable in writing.
func (t *tallies) take() map[flight.ID]*flight.Count {
	batch := make(map[flight.ID]*flight.Count)
	t.turn++ // so that no shard is always the last, which gets the remainder
	for i := range t.shards {
		share := (tallyBatch - len(batch)) / (cacheShards - i)
		t.takeFrom(&t.shards[(t.turn+i)%cacheShards], batch, share)
	}
	return batch
}

// takeFromShard moves up to limit counts of a shard into the batch.
func (t *tallies) takeFrom(s *tallyShard, batch map[flight.ID]*flight.Count, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit = min(limit, len(s.order))
	if limit > 0 && s.writing == nil {
		s.writing = make(map[flight.ID]*flight.Count)
	}
	for range limit {
		t.number++
		id := s.next(t.number%tallyOldest == 0)
		p := s.byID[id]
		delete(s.byID, id)
		c := &flight.Count{Key: p.key, Telling: flight.Telling{Source: t.source, Number: t.number}, Tally: p.tally()}
		batch[id], s.writing[id] = c, c
	}
	t.flights.Add(-int64(limit))
}

// nextFlight removes the flight to be written next from order, which must not be empty.
func (s *tallyShard) next(oldest bool) (id flight.ID) {
	last := len(s.order) - 1
	if oldest {
		id, s.order = s.order[0], s.order[1:]
	} else {
		id, s.order = s.order[last], s.order[:last]
	}
	return id
}

// clearWriting ends a flush.
func (t *tallies) written() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.writing = nil
		s.mu.Unlock()
	}
}

// requeue adds a count that was not committed to the waiting ones. It may exceed maxCountedFlights.
func (t *tallies) giveBack(id flight.ID, c *flight.Count) {
	s := &t.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writing, id)
	p := s.byID[id]
	if p == nil {
		t.flights.Add(1)
		p = s.begin(id, c.Key)
	}
	sum := c.Tally.Plus(p.tally())
	*p = pendingTally{key: c.Key, count: sum.Count, named: uint64(len(sum.Callers)), first: sum.First, last: sum.Last}
	copy(p.callers[:], sum.Callers)
}
