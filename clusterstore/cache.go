package clusterstore

import (
	"sync"

	"github.com/flightd/flightd/flight"
)

// cacheShards is a power of two: enough that readers on all cores seldom meet.
const cacheShards = 64

// cache keeps records at hand, decoded: a bounded number, those that were written or read last. Every record in it is
// the one that the state holds, because the state machine puts in what it has just written, and a reader puts in what
// it read only if nothing was written to the shard meanwhile. That a key was never used is what the roll knows.
type cache struct {
	shards [cacheShards]cacheShard
}

// cacheShard is two generations of entries. When the young one is full it becomes the old one, and the old one, which
// nobody asked for since, is dropped: least recently used, roughly, without a list.
type cacheShard struct {
	mu     sync.RWMutex
	young  map[flight.ID]*record
	old    map[flight.ID]*record
	size   int // of young, in weights
	limit  int // of size
	writes uint64
	_      [64]byte // shards do not share a cache line
}

func newCache(flights int) *cache {
	c := new(cache)
	for i := range c.shards {
		s := &c.shards[i]
		s.limit = max(1, flights/cacheShards/2)
		s.young = make(map[flight.ID]*record)
	}
	return c
}

func (c *cache) shard(id flight.ID) *cacheShard { return &c.shards[id[0]%cacheShards] }

// get answers from memory; nil where it knows nothing, and then the shard's count of writes for fill.
func (c *cache) get(id flight.ID) (r *record, writes uint64) {
	s := c.shard(id)
	s.mu.RLock()
	r = s.young[id]
	stale := false
	if r == nil {
		r = s.old[id]
		stale = r != nil
	}
	writes = s.writes
	s.mu.RUnlock()
	if stale {
		s.promote(id, r)
	}
	return r, writes
}

// promote keeps an entry of the old generation that was asked for.
func (s *cacheShard) promote(id flight.ID, r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old[id] != r || s.young[id] != nil {
		return // another one came meanwhile
	}
	delete(s.old, id)
	s.addLocked(id, r)
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
	delete(s.old, id)
	s.addLocked(id, r)
}

// forget drops what is known of a flight that was written to the state.
func (c *cache) forget(id flight.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	delete(s.old, id)
	if before := s.young[id]; before != nil {
		s.size -= before.weight()
		delete(s.young, id)
	}
}

func (s *cacheShard) addLocked(id flight.ID, r *record) {
	if s.size >= s.limit {
		s.old, s.young, s.size = s.young, make(map[flight.ID]*record, len(s.young)), 0
		delete(s.old, id)
	}
	if before := s.young[id]; before != nil {
		s.size -= before.weight()
	}
	s.young[id] = r
	s.size += r.weight()
}

// clear forgets everything: the state was replaced.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.young, s.old, s.size = make(map[flight.ID]*record), nil, 0
		s.writes++
		s.mu.Unlock()
	}
}
