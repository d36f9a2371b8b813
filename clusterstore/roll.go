package clusterstore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// roll knows of every flight that the state has ever held whether it might hold it. Nearly every command is about a key
// that was never used, and asking Pebble for it is a search of every table of recent writes and of every level; the
// roll says so after a glance at memory.
//
// It is a Bloom filter: "no" is certain, "perhaps" is wrong once in about two hundred times. A flight is entered before
// anybody is shown it, and never leaves: a key that was opened is never forgotten, and the few flights that are deleted,
// which held nothing but used nonces, are looked for in vain. So that a start need not read all flights, each entry of the log
// leaves the ids of its new flights behind in a row of their own, 16 bytes each.
type roll struct {
	mu     sync.Mutex // of those who enter
	sheets atomic.Pointer[[]*sheet]
	left   int // flights for which the newest sheet has room
}

// sheet is a filter of a fixed size. Each flight's bits stand in one cache line.
type sheet struct{ lines []rollLine }

type rollLine [8]uint64

const (
	// lineFlights is how many flights share a line of 512 bits, about 12 bits for each.
	lineFlights = 42
	// lineMarks is how many bits of its line a flight sets.
	lineMarks = 7
	// smallestSheet is for how many flights the first sheet has room. Each further one has twice that of the last.
	smallestSheet = 1 << 16
)

// newRoll makes a roll that has room for so many flights, and some more.
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

// enter notes a flight that the state did not hold before.
func (r *roll) enter(id flight.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line, marks := r.roomLocked().place(id)
	for range lineMarks {
		atomic.OrUint64(&line[marks>>6&7], 1<<(marks&63))
		marks >>= 9
	}
}

// copyIn enters a flight into a roll that nobody else has yet. It is what a start does ten million times, and without
// locked writes the processor fetches many lines at once.
func (r *roll) copyIn(id flight.ID) {
	line, marks := r.roomLocked().place(id)
	for range lineMarks {
		line[marks>>6&7] |= 1 << (marks & 63)
		marks >>= 9
	}
}

// roomLocked gives the newest sheet, which has room for the flight that is entered now.
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

// mayHold answers false when the state never held the flight.
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

// place is where a flight's bits stand: its line, and nine bits for each mark in it. Ids are digests, so their bytes are
// as good as any hash of them.
func (s *sheet) place(id flight.ID) (*rollLine, uint64) {
	n, _ := bits.Mul64(binary.LittleEndian.Uint64(id[:8]), uint64(len(s.lines)))
	return &s.lines[n], binary.LittleEndian.Uint64(id[8:])
}

// rollPart is the flights that came into being by one entry of the log, which have a row together.
type rollPart struct {
	entry uint64
	ids   []byte
}

func rollKey(b []byte, entry uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, rollRow), entry)
}

// loadRoll enters all flights that a state holds. There are counts.
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
		err = fmt.Errorf("%w: the roll of the state's flights names %+d more than there are", ErrDamaged, -flights)
	}
	return r, err
}
