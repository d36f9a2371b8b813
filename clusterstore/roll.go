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
type roll struct {
	mu     sync.Mutex // held while a flight is added; readers use no lock
	sheets atomic.Pointer[[]*sheet]
	left   int // flights that fit into the newest segment
}

// filterSegment is a filter of fixed size. The bits of a flight are in one block, which is one cache line.
type sheet struct{ lines []rollLine }

type rollLine [8]uint64

const (
	// blockKeys is how many flights share a block of 512 bits: about 12 bits each.
	lineFlights = 42
	// blockProbes is how many bits a flight sets in its block.
	lineMarks = 7
	// firstSegmentKeys is the capacity of the first segment. Each further segment doubles the capacity of the last.
	smallestSheet = 1 << 16
)

// newKeyFilter returns a filter with capacity for so many flights and a quarter more.
func newRoll(flights int64) *roll {
	r := new(roll)
	r.growLocked(max(smallestSheet, int(flights)+int(flights)/4))
	return r
}

func (r *roll) growLocked(flights int) {
	var sheets []*sheet
	if old := r.sheets.Load(); old != nil {
		sheets = append(sheets, *old...)
	}
	sheets = append(sheets, &sheet{lines: make([]rollLine, flights/lineFlights+1)})
	r.sheets.Store(&sheets)
	r.left = flights
}

// add adds a flight that is new to the state.
func (r *roll) enter(id flight.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line, marks := r.roomLocked().place(id)
	for range lineMarks {
		atomic.OrUint64(&line[marks>>6&7], 1<<(marks&63))
		marks >>= 9
	}
}

// addUnshared adds a flight to a filter that no other goroutine can see yet. A start calls it up to ten million
// times; without atomic writes the processor overlaps the memory accesses.
func (r *roll) copyIn(id flight.ID) {
	line, marks := r.roomLocked().place(id)
	for range lineMarks {
		line[marks>>6&7] |= 1 << (marks & 63)
		marks >>= 9
	}
}

// writableSegmentLocked returns the newest segment and takes one flight of its capacity. It adds a segment when the
// last one is full.
func (r *roll) roomLocked() *sheet {
	sheets := *r.sheets.Load()
	newest := sheets[len(sheets)-1]
	if r.left == 0 {
		r.growLocked(2 * lineFlights * len(newest.lines))
		sheets = *r.sheets.Load()
		newest = sheets[len(sheets)-1]
	}
	r.left--
	return newest
}

// mayContain returns false if the state has never held the flight.
func (r *roll) mayHold(id flight.ID) bool {
	for _, s := range *r.sheets.Load() {
		if s.mayHold(id) {
			return true
		}
	}
	return false
}

func (s *sheet) mayHold(id flight.ID) bool {
	line, marks := s.place(id)
	for range lineMarks {
		if atomic.LoadUint64(&line[marks>>6&7])&(1<<(marks&63)) == 0 {
			return false
		}
		marks >>= 9
	}
	return true
}

// locate returns a flight's block and nine bits for each probe in it. Ids are digests, so their bytes need no further
// hashing.
func (s *sheet) place(id flight.ID) (*rollLine, uint64) {
	n, _ := bits.Mul64(binary.LittleEndian.Uint64(id[:8]), uint64(len(s.lines)))
	return &s.lines[n], binary.LittleEndian.Uint64(id[8:])
}

// createdFlights are the flights created by one log entry; they share one row.
type rollPart struct {
	entry uint64
	ids   []byte
}

func rollKey(b []byte, entry uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, rollRow), entry)
}

// loadKeyFilter adds all flights of a state to a new filter. ErrDamaged: the rows do not hold as many ids as there
// are flights.
func loadRoll(s *state, m *meta) (*roll, error) {
	var flights int64
	for _, n := range m.Counts {
		flights += n
	}
	r := newRoll(flights)
	err := s.scan(singleRow(rollRow), singleRow(rollRow+1), func(_, ids []byte) (bool, error) {
		var id flight.ID
		for ; len(ids) >= len(id); ids = ids[len(id):] {
			r.copyIn(flight.ID(ids[:len(id)]))
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
