package clusterstore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// keyFilter is a Bloom filter over every flight that the state has ever held. Nearly every command is about a key
// that was never used. Without the filter, each would search Pebble's memtables and every level.
//
// "No" is certain; "maybe" is wrong about once in 200 lookups. A flight is added before a reader can see it, and is
// never removed. The few deleted flights, which held only used nonces, cost a lookup without a result. So that a
// start need not read all flights, each log entry that creates flights stores their ids in one row, 16 bytes each.
type keyFilter struct {
	mu           sync.Mutex // held while a flight is added; readers use no lock
	segments     atomic.Pointer[[]*filterSegment]
	capacityLeft int // flights that fit into the newest segment
}

// filterSegment is a filter of fixed size. The bits of a flight are in one block, which is one cache line.
type filterSegment struct{ blocks []filterBlock }

type filterBlock [8]uint64

const (
	// blockKeys is how many flights share a block of 512 bits: about 12 bits each.
	blockKeys = 42
	// blockProbes is how many bits a flight sets in its block.
	blockProbes = 7
	// firstSegmentKeys is the capacity of the first segment. Each further segment doubles the capacity of the last.
	firstSegmentKeys = 1 << 16
)

// newKeyFilter returns a filter with a capacity of 1.25 times flights.
func newKeyFilter(flights int64) *keyFilter {
	r := new(keyFilter)
	r.growLocked(max(firstSegmentKeys, int(flights)+int(flights)/4))
	return r
}

func (f *keyFilter) growLocked(flights int) {
	var segments []*filterSegment
	if old := f.segments.Load(); old != nil {
		segments = append(segments, *old...)
	}
	segments = append(segments, &filterSegment{blocks: make([]filterBlock, flights/blockKeys+1)})
	f.segments.Store(&segments)
	f.capacityLeft = flights
}

// add adds a flight that is new to the state.
func (f *keyFilter) add(id flight.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	block, probes := f.writableSegmentLocked().locate(id)
	for range blockProbes {
		atomic.OrUint64(&block[probes>>6&7], 1<<(probes&63))
		probes >>= 9
	}
}

// addUnshared adds a flight to a filter that no other goroutine can see yet. A start calls it up to ten million
// times; without atomic writes the processor overlaps the memory accesses.
func (f *keyFilter) addUnshared(id flight.ID) {
	block, probes := f.writableSegmentLocked().locate(id)
	for range blockProbes {
		block[probes>>6&7] |= 1 << (probes & 63)
		probes >>= 9
	}
}

// writableSegmentLocked returns the newest segment and takes one flight of its capacity. It adds a segment when the
// last one is full.
func (f *keyFilter) writableSegmentLocked() *filterSegment {
	segments := *f.segments.Load()
	newest := segments[len(segments)-1]
	if f.capacityLeft == 0 {
		f.growLocked(2 * blockKeys * len(newest.blocks))
		segments = *f.segments.Load()
		newest = segments[len(segments)-1]
	}
	f.capacityLeft--
	return newest
}

// mayContain returns false if the state has never held the flight.
func (f *keyFilter) mayContain(id flight.ID) bool {
	for _, s := range *f.segments.Load() {
		if s.mayContain(id) {
			return true
		}
	}
	return false
}

func (s *filterSegment) mayContain(id flight.ID) bool {
	block, probes := s.locate(id)
	for range blockProbes {
		if atomic.LoadUint64(&block[probes>>6&7])&(1<<(probes&63)) == 0 {
			return false
		}
		probes >>= 9
	}
	return true
}

// locate returns a flight's block and nine bits for each probe in it. Ids are digests, so their bytes need no further
// hashing.
func (s *filterSegment) locate(id flight.ID) (*filterBlock, uint64) {
	n, _ := bits.Mul64(binary.LittleEndian.Uint64(id[:8]), uint64(len(s.blocks)))
	return &s.blocks[n], binary.LittleEndian.Uint64(id[8:])
}

// createdFlights are the flights created by one log entry; they share one row.
type createdFlights struct {
	entry uint64
	ids   []byte
}

func filterKey(b []byte, entry uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, filterRow), entry)
}

// loadKeyFilter adds all flights of a state to a new filter. ErrDamaged: the rows do not hold as many ids as there
// are flights.
func loadKeyFilter(s *state, m *meta) (*keyFilter, error) {
	var flights int64
	for _, n := range m.Counts {
		flights += n
	}
	r := newKeyFilter(flights)
	err := s.scan(kindKey(filterRow), kindKey(filterRow+1), func(_, ids []byte) (bool, error) {
		var id flight.ID
		for ; len(ids) >= len(id); ids = ids[len(id):] {
			r.addUnshared(flight.ID(ids[:len(id)]))
			flights--
		}
		return true, nil
	})
	flights += m.Deleted
	if err == nil && flights != 0 {
		err = fmt.Errorf("%w: the key filter differs from the flights of the state by %+d ids", ErrDamaged, -flights)
	}
	return r, err
}
