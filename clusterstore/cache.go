package clusterstore

import (
	"sync"

	"github.com/flightd/flightd/flight"
)

// cacheShards is a power of two: enough that readers on all cores seldom meet.
const cacheShards = 64

// cache keeps decoded flights at hand: a bounded number, those that were written or read last. Every flight in it is
// the one that the state holds, because the state machine puts in what it has just written, and a reader puts in what
// it read only if nothing was written to the shard meanwhile. That a key was never used is remembered in the same way:
// every new flight is looked up twice before it is written, once by its caller and once by the rules.
type cache struct {
	shards [cacheShards]cacheShard
	absent *flight.Flight // stands for a key that was never used
}

// cacheShard is two generations of entries. When the young one is full it becomes the old one, and the old one, which
// nobody asked for since, is dropped: least recently used, roughly, without a list.
type cacheShard struct {
	mu     sync.RWMutex
	young  map[flight.ID]*flight.Flight
	old    map[flight.ID]*flight.Flight
	limit  int
	writes uint64
	_      [64]byte // shards do not share a cache line
}

func newCache(flights int) *cache {
	c := &cache{absent: new(flight.Flight)}
	for i := range c.shards {
		s := &c.shards[i]
		s.limit = max(1, flights/cacheShards/2)
		s.young = make(map[flight.ID]*flight.Flight)
	}
	return c
}

func (c *cache) shard(id flight.ID) *cacheShard { return &c.shards[id[0]%cacheShards] }

// get answers from memory; nil for a key that is known to be unused. When it knows nothing, it returns the shard's count
// of writes for fill.
func (c *cache) get(id flight.ID) (f *flight.Flight, known bool, writes uint64) {
	s := c.shard(id)
	s.mu.RLock()
	f = s.young[id]
	if f == nil {
		f = s.old[id]
	}
	stale := f != nil && len(s.old) > 0 && s.old[id] == f
	writes = s.writes
	s.mu.RUnlock()
	if stale {
		s.promote(id, f)
	}
	if f == c.absent {
		return nil, true, writes
	}
	return f, f != nil, writes
}

// promote keeps an entry of the old generation that was asked for.
func (s *cacheShard) promote(id flight.ID, f *flight.Flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old[id] != f || s.young[id] != nil {
		return // another one came meanwhile
	}
	delete(s.old, id)
	s.addLocked(id, f)
}

// fill remembers what was read from the state, nil for nothing, unless the shard was written to since get.
func (c *cache) fill(id flight.ID, f *flight.Flight, writes uint64) {
	if f == nil {
		f = c.absent
	}
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes == writes {
		s.addLocked(id, f)
	}
}

// put remembers what was written to the state.
func (c *cache) put(id flight.ID, f *flight.Flight) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	delete(s.old, id)
	s.addLocked(id, f)
}

// forget drops what is known of a flight that was written to the state.
func (c *cache) forget(id flight.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	delete(s.old, id)
	delete(s.young, id)
}

func (s *cacheShard) addLocked(id flight.ID, f *flight.Flight) {
	if len(s.young) >= s.limit {
		s.old, s.young = s.young, make(map[flight.ID]*flight.Flight, s.limit)
		delete(s.old, id)
	}
	s.young[id] = f
}

// clear forgets everything: the state was replaced.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.young, s.old = make(map[flight.ID]*flight.Flight), nil
		s.writes++
		s.mu.Unlock()
	}
}
