package clusterstore

import (
	"sync"

	"github.com/flightd/flightd/flight"
)

// cacheShards is a power of two: enough that readers on all cores seldom meet.
const cacheShards = 64

// cache keeps records at hand, decoded: a bounded number, those that were written or asked for last. Every record in it is
// the one that the state holds, because the state machine puts in what it has just written, and a reader puts in what
// it read only if nothing was written to the shard meanwhile. That a key was never used is what the roll knows.
type cache struct {
	shards [cacheShards]cacheShard
}

// cacheShard is a clock: its hand goes round over the records, and where room is needed the first one goes that nobody
// asked for since the hand was there last. A hit changes nothing but that mark.
type cacheShard struct {
	mu     sync.RWMutex
	byID   map[flight.ID]int // where in ring
	ring   []cached
	holes  []int // in ring
	hand   int
	size   int // in weights
	limit  int // of size
	writes uint64
	_      [64]byte // shards do not share a cache line
}

// cached is one place of the ring; a hole has no record.
type cached struct {
	id flight.ID
	r  *record
}

func newCache(flights int) *cache {
	c := new(cache)
	for i := range c.shards {
		c.shards[i].limit = max(1, flights/cacheShards)
		c.shards[i].byID = make(map[flight.ID]int)
	}
	return c
}

func (c *cache) shard(id flight.ID) *cacheShard { return &c.shards[id[0]%cacheShards] }

// get answers from memory; nil where it knows nothing, and then the shard's count of writes for fill.
func (c *cache) get(id flight.ID) (r *record, writes uint64) {
	s := c.shard(id)
	s.mu.RLock()
	if at, found := s.byID[id]; found {
		r = s.ring[at].r
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
	if s.writes == writes {
		s.addLocked(id, r)
	}
}

// put remembers what was written to the state.
func (c *cache) put(id flight.ID, r *record) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.addLocked(id, r)
}

// forget drops what is known of a flight that was written to the state.
func (c *cache) forget(id flight.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.dropLocked(id)
}

func (s *cacheShard) addLocked(id flight.ID, r *record) {
	s.dropLocked(id)
	for s.size+r.weight() > s.limit && len(s.byID) > 0 {
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
	s.size -= s.ring[at].r.weight()
	s.ring[at] = cached{}
	s.holes = append(s.holes, at)
	delete(s.byID, id)
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
		s.writes++
		s.mu.Unlock()
	}
}
