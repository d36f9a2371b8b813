package clusterstore

import (
	"encoding/binary"
	"sync"

	"github.com/flightd/flightd/flight"
)

// cacheShards is a power of two: enough that readers on all cores seldom meet.
const cacheShards = 64

// cache keeps records at hand, decoded: a bounded number, those that were written or asked for last. Every record in it is
// the one that the state holds, because the state machine puts in what it has just written, and a reader puts in what
// it read only if nothing was written to the shard meanwhile. That a key was never used is what the roll knows.
//
// What is read once is seldom asked for again, and in a large ledger there is much of it: kept like the rest it would push
// out what is used, and fill the heap with what the collector must go through again and again. So it waits in a
// small place of its own, and only what is read again after it had to leave that is kept: the 2Q of Johnson and Shasha (VLDB
// 1994), with a clock for the main queue.
type cache struct {
	shards [cacheShards]cacheShard
}

// cacheShard is a clock: its hand goes round over the records, and where room is needed the first one goes that nobody
// asked for since the hand was there last. A hit changes nothing but that mark. Beside it are those that were read once.
type cacheShard struct {
	mu     sync.RWMutex
	byID   map[flight.ID]int // where in ring; in once, below zero: see onceAt
	ring   []cached
	holes  []int // in ring
	hand   int
	size   int      // in weights
	limit  int      // of size
	once   []cached // read once, in turn: the next one takes the place of the oldest
	turn   int      // the next place in once
	left   []uint32 // marks of some that left once, each where its id leads
	writes uint64
	_      [64]byte // shards do not share a cache line
}

// onceShare is the part of a shard's places that are for what was read once.
const onceShare = 16

// onceAt turns a place in once into one of byID, and back.
func onceAt(at int) int { return -1 - at }

// cached is one place of the ring; a hole has no record.
type cached struct {
	id flight.ID
	r  *record
}

func newCache(flights int) *cache {
	c := new(cache)
	for i := range c.shards {
		places := max(2, flights/cacheShards)
		s := &c.shards[i]
		s.once, s.left = make([]cached, max(1, places/onceShare)), make([]uint32, places)
		s.limit = places - len(s.once)
		s.byID = make(map[flight.ID]int)
	}
	return c
}

func (c *cache) shard(id flight.ID) *cacheShard { return &c.shards[id[0]%cacheShards] }

// get answers from memory; nil where it knows nothing, and then the shard's count of writes for fill.
func (c *cache) get(id flight.ID) (r *record, writes uint64) {
	s := c.shard(id)
	s.mu.RLock()
	if at, found := s.byID[id]; found {
		r = s.placeLocked(at).r
	}
	writes = s.writes
	s.mu.RUnlock()
	if r != nil && !r.asked.Load() {
		r.asked.Store(true)
	}
	return r, writes
}

// fill remembers what was read from the state, unless the shard was written to since get.
func (c *cache) fill(id flight.ID, r *record, writes uint64) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes != writes {
		return
	}
	if _, found := s.byID[id]; found {
		return // another reader was faster
	}
	if mark, at := s.markOf(id); s.left[at] == mark {
		s.left[at] = 0
		s.addLocked(id, r)
		return
	}
	s.addOnceLocked(id, r)
}

// put remembers what was written to the state.
func (c *cache) put(id flight.ID, r *record) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.addLocked(id, r)
}

// renew is put for a write of which it does not follow that anybody will ask: only what is at hand is kept.
func (c *cache) renew(id flight.ID, r *record) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	switch at, found := s.byID[id]; {
	case !found:
	case at < 0:
		s.placeLocked(at).r = r
	default:
		s.addLocked(id, r)
	}
}

// forget drops what is known of a flight that was written to the state.
func (c *cache) forget(id flight.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.dropLocked(id)
}

// placeLocked is where a place of byID leads.
func (s *cacheShard) placeLocked(at int) *cached {
	if at < 0 {
		return &s.once[onceAt(at)]
	}
	return &s.ring[at]
}

// markOf is by what an id is known that left once, and where that stands. Where another one has the same, it is kept early.
func (s *cacheShard) markOf(id flight.ID) (mark uint32, at int) {
	return binary.LittleEndian.Uint32(id[4:]) | 1, int(binary.LittleEndian.Uint32(id[8:]) % uint32(len(s.left)))
}

func (s *cacheShard) addOnceLocked(id flight.ID, r *record) {
	if old := s.once[s.turn]; old.r != nil {
		delete(s.byID, old.id)
		mark, at := s.markOf(old.id)
		s.left[at] = mark
	}
	s.once[s.turn] = cached{id, r}
	s.byID[id] = onceAt(s.turn)
	s.turn = (s.turn + 1) % len(s.once)
}

func (s *cacheShard) addLocked(id flight.ID, r *record) {
	s.dropLocked(id)
	for s.size+r.weight() > s.limit && s.size > 0 {
		s.evictLocked()
	}
	at := len(s.ring)
	if n := len(s.holes); n > 0 {
		at, s.holes = s.holes[n-1], s.holes[:n-1]
	} else {
		s.ring = append(s.ring, cached{})
	}
	s.ring[at] = cached{id, r}
	s.byID[id] = at
	s.size += r.weight()
}

func (s *cacheShard) dropLocked(id flight.ID) {
	at, found := s.byID[id]
	if !found {
		return
	}
	delete(s.byID, id)
	place := s.placeLocked(at)
	if at >= 0 {
		s.size -= place.r.weight()
		s.holes = append(s.holes, at)
	}
	*place = cached{}
}

// evictLocked drops one record; there is one. It ends within two rounds, but for marks that readers make meanwhile.
func (s *cacheShard) evictLocked() {
	for {
		s.hand = (s.hand + 1) % len(s.ring)
		one := s.ring[s.hand]
		if one.r != nil && !one.r.asked.Swap(false) {
			s.dropLocked(one.id)
			return
		}
	}
}

// clear forgets everything: the state was replaced.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.byID, s.ring, s.holes, s.hand, s.size = make(map[flight.ID]int), nil, nil, 0, 0
		clear(s.once)
		s.writes++
		s.mu.Unlock()
	}
}
