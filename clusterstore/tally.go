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

// Duplicates are counted in memory and written to the ledger a moment later, together with whatever else is on its way.
// What was counted and not written is lost when the process dies, and what was on its way when this node ceased to
// lead: a tally tells a tale and guards nothing.
const (
	// tallyPause is how long counts are collected before some of them are written.
	tallyPause = 250 * time.Millisecond
	// tallyBatch is how many flights' counts are written at once. With more of them, under a flood of duplicates of ever
	// other keys, counts wait in memory for their turn. Those of the flights that were asked for last go first: their
	// records are still at hand, and that of any other is read from the state again for its count.
	tallyBatch = 512
	// tallyOldest is which part of a batch has waited longest, so that none waits for as long as a flood lasts.
	tallyOldest = 16
	// tallyRoom is how many flights may have counts that wait, usually about 0.3 KiB each, and 8 KiB at most, where
	// callers give themselves long names. Beyond it duplicates of yet other flights are not counted.
	tallyRoom = 1 << 16
)

// tallies are the counts that are not in the ledger yet.
type tallies struct {
	source  uint64 // of this process, by chance
	clock   func() time.Time
	dirty   chan struct{} // there is something to write
	flights atomic.Int64  // with counts in shards
	shards  [cacheShards]tallyShard

	writer chan struct{} // taken by the one who writes
	number uint64        // of the last Count
	turn   int           // rises: the shard to begin with
	round  atomic.Uint64 // rises when counts are taken to be written, and when they were
}

type tallyShard struct {
	mu      sync.Mutex
	byID    map[flight.ID]*pendingTally
	order   []flight.ID // of byID: oldest first
	writing map[flight.ID]*flight.Count
	_       [16]byte // shards do not share a cache line
}

// pendingTally collects duplicates of one flight. Callers are kept in a ring.
type pendingTally struct {
	key         flight.Key
	count       uint64
	named       uint64 // callers that came into the ring
	first, last flight.Time
	callers     [flight.MaxCallers]flight.Caller
}

func newTallies(clock func() time.Time) *tallies {
	t := &tallies{clock: clock, dirty: make(chan struct{}, 1), writer: make(chan struct{}, 1)}
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the program first
	t.source = binary.BigEndian.Uint64(b[:])
	return t
}

// Duplicate counts one call of a key that was answered without another effect. It is cheap and waits for nothing.
func (s *Store) Duplicate(key flight.Key, who string) { s.tallies.add(key.FlightID(), key, who) }

// DuplicateOf is Duplicate for a caller who knows the id of the key's flight already.
func (s *Store) DuplicateOf(id flight.ID, key flight.Key, who string) { s.tallies.add(id, key, who) }

// Tally is what was counted of the duplicates of a flight, in the ledger and by this process since.
func (s *Store) Tally(id flight.ID) (flight.Tally, error) {
	for {
		round := s.tallies.round.Load()
		written, waiting := s.tallies.find(id)
		f, err := s.Flight(id)
		if err != nil || f == nil || f.State == flight.Expired {
			return flight.Tally{}, err
		}
		if s.tallies.round.Load() != round {
			continue // what waited may be in the ledger by now: it must not be counted twice
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

// find gives what is being written of a flight's duplicates, and what waits.
func (t *tallies) find(id flight.ID) (written *flight.Count, waiting flight.Tally) {
	s := &t.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock() // what is taken to be written is so under this lock
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

// begin makes room for one more flight; nil when there is none.
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
	default: // it is known
	}
}

// tally is what was collected, oldest caller first.
func (p *pendingTally) tally() flight.Tally {
	n := min(p.named, flight.MaxCallers)
	sum := flight.Tally{Count: p.count, First: p.first, Last: p.last, Callers: make([]flight.Caller, 0, n)}
	for i := p.named - n; i < p.named; i++ {
		sum.Callers = append(sum.Callers, p.callers[i%flight.MaxCallers])
	}
	return sum
}

// writeTallies writes what was counted, a moment after it was. It ends when the store closes.
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

// drainTallies writes everything that was counted, as long as that goes on and ctx lives.
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

// flushTallies writes a batch and reports whether there is more.
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
		// What is not at hand is read here, where nobody waits: the machine would keep everybody waiting for it.
		_, _ = s.machine.read(id) // it will meet the error itself
		data, err := s.encode(c)
		if err != nil {
			continue // it can never be written
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
			back = append(back, id) // surely not written; after any other error it may be, and is not counted again
		}
	}
	for _, id := range back {
		t.giveBack(id, batch[id])
	}
	t.written()
	return t.flights.Load() > 0
}

// take takes up to tallyBatch counts, from each shard its share. They can still be read.
func (t *tallies) take() map[flight.ID]*flight.Count {
	batch := make(map[flight.ID]*flight.Count)
	t.turn++ // nobody is always the last one, who gets what others left
	for i := range t.shards {
		share := (tallyBatch - len(batch)) / (cacheShards - i)
		t.takeFrom(&t.shards[(t.turn+i)%cacheShards], batch, share)
	}
	return batch
}

// takeFrom takes up to limit counts of a shard into the batch.
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

// next takes out of the order whose count is written next; there is one.
func (s *tallyShard) next(oldest bool) (id flight.ID) {
	last := len(s.order) - 1
	if oldest {
		id, s.order = s.order[0], s.order[1:]
	} else {
		id, s.order = s.order[last], s.order[:last]
	}
	return id
}

// written says that nothing is being written any more.
func (t *tallies) written() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.writing = nil
		s.mu.Unlock()
	}
}

// giveBack returns what could not be written to what waits. It had its room there before.
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
