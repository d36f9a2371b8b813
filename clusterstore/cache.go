package clusterstore

import (
	"encoding/binary"
	"sync"

	"github.com/flightd/flightd/flight"
)

// cacheShards is a power of two, large enough that readers on all cores rarely contend for one shard.
const cacheShards = 64

// cache holds a bounded number of decoded records. Every cached record equals the stored one: the FSM puts each
// record that it changes, and a reader fills in a record only if the shard was not written to since the reader's
// lookup. The key filter, not the cache, knows which keys were never used.
//
// A large ledger has many records that are read only once. If they replaced the records in use, the cache would be
// useless and the garbage collector would scan them again and again. So the cache is scan-resistant: it is 2Q
// (Johnson and Shasha, VLDB 1994) with a CLOCK as its main queue. A record that is read enters the small probation
// queue. Only a record that is read again after it left that queue enters the main queue.
type cache struct {
	shards [cacheShards]cacheShard
}

// cacheShard is one CLOCK with its probation queue. The hand moves round the ring and evicts the first record that
// was not referenced since the hand was last there. A hit changes nothing but the record's referenced bit.
type cacheShard struct {
	mu            sync.RWMutex      // guards all fields; get holds it for reading
	byID          map[flight.ID]int // index in ring; below zero: probationIndex of an index in probation
	ring          []cacheEntry
	freeEntries   []int // unused indexes of ring
	hand          int
	size          int          // sum of record.weight in ring
	limit         int          // maximum of size
	probation     []cacheEntry // read once; a new record replaces the oldest
	probationNext int          // next index in probation to be replaced
	ghosts        []uint32     // fingerprints of records that left probation; see ghostOf
	writes        uint64
	_             [64]byte // padding, so that shards do not share a cache line
}

// probationShare is a shard's number of entries for each entry of probation.
const probationShare = 16

// probationIndex converts an index of probation to a value of byID, and back.
func probationIndex(at int) int { return -1 - at }

// cacheEntry is one entry of ring or probation. Its record is nil when it is unused.
type cacheEntry struct {
	id flight.ID
	r  *record
}

func newCache(flights int) *cache {
	c := new(cache)
	for i := range c.shards {
		places := max(2, flights/cacheShards)
		s := &c.shards[i]
		s.probation, s.ghosts = make([]cacheEntry, max(1, places/probationShare)), make([]uint32, places)
		s.limit = places - len(s.probation)
		s.byID = make(map[flight.ID]int)
	}
	return c
}

func (c *cache) shard(id flight.ID) *cacheShard { return &c.shards[id[0]%cacheShards] }

// get returns a cached record, or nil if there is none. The caller passes writes on to fill.
func (c *cache) get(id flight.ID) (r *record, writes uint64) {
	s := c.shard(id)
	s.mu.RLock()
	if at, found := s.byID[id]; found {
		r = s.entryLocked(at).r
	}
	writes = s.writes
	s.mu.RUnlock()
	if r != nil && !r.referenced.Load() {
		r.referenced.Store(true)
	}
	return r, writes
}

// fill adds a record that was read from the state, unless the shard was written to since get returned writes.
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
	if mark, at := s.ghostOf(id); s.ghosts[at] == mark {
		s.ghosts[at] = 0
		s.addLocked(id, r)
		return
	}
	s.addProbationLocked(id, r)
}

// put adds a record that the FSM has changed.
func (c *cache) put(id flight.ID, r *record) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.addLocked(id, r)
}

// refresh replaces a record only where it is cached. It is for writes, such as duplicate statistics, that do not
// predict a read.
func (c *cache) refresh(id flight.ID, r *record) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	switch at, found := s.byID[id]; {
	case !found:
	case at < 0:
		s.entryLocked(at).r = r
	default:
		s.addLocked(id, r)
	}
}

// remove removes a record. The FSM calls it for a flight that it has deleted or turned into a tombstone.
func (c *cache) remove(id flight.ID) {
	s := c.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.removeLocked(id)
}

// entryLocked returns the entry for a value of byID.
func (s *cacheShard) entryLocked(at int) *cacheEntry {
	if at < 0 {
		return &s.probation[probationIndex(at)]
	}
	return &s.ring[at]
}

// ghostOf returns the fingerprint of an id and its index in ghosts. On a collision a record enters the main queue one
// read too early.
func (s *cacheShard) ghostOf(id flight.ID) (mark uint32, at int) {
	return binary.LittleEndian.Uint32(id[4:]) | 1, int(binary.LittleEndian.Uint32(id[8:]) % uint32(len(s.ghosts)))
}

func (s *cacheShard) addProbationLocked(id flight.ID, r *record) {
	if old := s.probation[s.probationNext]; old.r != nil {
		delete(s.byID, old.id)
		mark, at := s.ghostOf(old.id)
		s.ghosts[at] = mark
	}
	s.probation[s.probationNext] = cacheEntry{id, r}
	s.byID[id] = probationIndex(s.probationNext)
	s.probationNext = (s.probationNext + 1) % len(s.probation)
}

func (s *cacheShard) addLocked(id flight.ID, r *record) {
	s.removeLocked(id)
	for s.size+r.weight() > s.limit && s.size > 0 {
		s.evictLocked()
	}
	at := len(s.ring)
	if n := len(s.freeEntries); n > 0 {
		at, s.freeEntries = s.freeEntries[n-1], s.freeEntries[:n-1]
	} else {
		s.ring = append(s.ring, cacheEntry{})
	}
	s.ring[at] = cacheEntry{id, r}
	s.byID[id] = at
	s.size += r.weight()
}

func (s *cacheShard) removeLocked(id flight.ID) {
	at, found := s.byID[id]
	if !found {
		return
	}
	delete(s.byID, id)
	place := s.entryLocked(at)
	if at >= 0 {
		s.size -= place.r.weight()
		s.freeEntries = append(s.freeEntries, at)
	}
	*place = cacheEntry{}
}

// evictLocked removes one record from the ring, which must hold one. It ends within two rounds of the hand, unless
// readers keep setting referenced bits.
func (s *cacheShard) evictLocked() {
	for {
		s.hand = (s.hand + 1) % len(s.ring)
		entry := s.ring[s.hand]
		if entry.r != nil && !entry.r.referenced.Swap(false) {
			s.removeLocked(entry.id)
			return
		}
	}
}

// clear empties the cache. Restore calls it after it has replaced the state.
func (c *cache) clear() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.byID, s.ring, s.freeEntries, s.hand, s.size = make(map[flight.ID]int), nil, nil, 0, 0
		clear(s.probation)
		s.writes++
		s.mu.Unlock()
	}
}
