package executor

import (
	"bytes"
	"sync"

	"github.com/flightd/flightd/flight"
)

const (
	// bodyShards is enough that readers on all cores seldom meet.
	bodyShards = 64
	// longestBody is the length up to which bodies are worth a place in memory.
	longestBody = 4 << 10
	// bodyCost is what a body costs beside its bytes.
	bodyCost = 128
)

// bodies keeps the bodies of receipts that were asked for, so that a replay needs no disk. A receipt never changes, but
// its flight may: a body counts for the version of the flight that it was read with.
type bodies struct {
	shards [bodyShards]bodyShard
	limit  int // bytes in one generation of a shard
}

// bodyShard is two generations. When the young one is full it becomes the old one, and what nobody asked for since the
// old one was young is dropped.
type bodyShard struct {
	mu    sync.RWMutex
	young map[flight.ID]keptBody
	old   map[flight.ID]keptBody
	size  int // of young
	_     [24]byte
}

type keptBody struct {
	version flight.Version
	data    []byte
}

func newBodies(size int) *bodies { return &bodies{limit: max(0, size) / bodyShards / 2} }

// get gives a copy of the body of a flight's receipt.
func (b *bodies) get(f *flight.Flight) (data []byte, found bool) {
	s := &b.shards[f.ID[0]%bodyShards]
	s.mu.RLock()
	kept, found := s.young[f.ID]
	old := false
	if !found {
		kept, found = s.old[f.ID]
		old = found
	}
	s.mu.RUnlock()
	if !found || kept.version != f.Version {
		return nil, false
	}
	if old {
		b.put(f, kept.data)
	}
	return bytes.Clone(kept.data), true
}

// put keeps a body. data must not be changed afterwards.
func (b *bodies) put(f *flight.Flight, data []byte) {
	if len(data) > longestBody || b.limit < longestBody+bodyCost {
		return
	}
	s := &b.shards[f.ID[0]%bodyShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, found := s.young[f.ID]; found {
		s.size -= len(before.data) + bodyCost
	}
	if s.size += len(data) + bodyCost; s.young == nil || s.size > b.limit {
		s.old, s.young = s.young, make(map[flight.ID]keptBody)
		s.size = len(data) + bodyCost
	}
	s.young[f.ID] = keptBody{version: f.Version, data: data}
}
