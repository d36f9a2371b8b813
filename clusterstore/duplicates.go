package clusterstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Duplicates are counted in memory, and the counts are proposed a moment later together with other commands. Counts
// that are not committed are lost when the process dies or this node loses the leadership meanwhile. No rule reads them.
const (
	// duplicateFlushDelay is how often the leader proposes counts.
	duplicateFlushDelay = 250 * time.Millisecond
	// duplicateFlushFlights is how many flights' counts are proposed at a time. Those of more flights wait in memory.
	duplicateFlushFlights = 512
	// maxCountedFlights is how many flights may have counts in memory, usually 0.3 KiB each, at most 8 KiB with long
	// caller names. Duplicates of further flights are not counted.
	maxCountedFlights = 1 << 16
)

// duplicateCounts holds the counts that are not in the ledger yet.
type duplicateCounts struct {
	source uint64 // random id of this process
	clock  func() time.Time

	mu      sync.Mutex // guards the fields below
	number  uint64     // of the last CountDuplicates that was taken
	waiting map[flight.ID]*flight.CountDuplicates
}

func newDuplicateCounts(clock func() time.Time) *duplicateCounts {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never returns an error
	return &duplicateCounts{source: binary.BigEndian.Uint64(b[:]), clock: clock, waiting: make(map[flight.ID]*flight.CountDuplicates)}
}

// DuplicateStats returns the duplicate statistics of a flight as of the last entry applied here.
func (r *reader) DuplicateStats(id flight.ID) (flight.DuplicateStats, error) {
	f, err := r.Flight(id)
	if err != nil || f == nil || f.Duplicates == nil {
		return flight.DuplicateStats{}, err
	}
	return *f.Duplicates, nil
}

// AddDuplicates adds a count that TakeDuplicates has returned at another node.
func (dc *duplicateCounts) AddDuplicates(c *flight.CountDuplicates) {
	id := c.Key.FlightID()
	dc.mu.Lock()
	defer dc.mu.Unlock()
	if sum := dc.ofLocked(id, c.Key); sum != nil {
		sum.Stats = sum.Stats.Add(c.Stats)
	}
}

// CountDuplicate counts a call that was answered without another effect. It does not wait.
func (dc *duplicateCounts) CountDuplicate(key flight.Key, actor string) {
	id, caller := key.FlightID(), flight.Caller{Actor: flight.Sanitize(actor), At: flight.Time(dc.clock().UnixMilli())}
	dc.mu.Lock()
	defer dc.mu.Unlock()
	c := dc.ofLocked(id, key)
	if c == nil {
		return
	}
	sum := &c.Stats
	if sum.Count == 0 {
		sum.First = caller.At
	}
	sum.Count, sum.Last = sum.Count+1, max(sum.Last, caller.At)
	if len(sum.Callers) == flight.MaxCallers {
		sum.Callers = sum.Callers[:copy(sum.Callers, sum.Callers[1:])]
	}
	sum.Callers = append(sum.Callers, caller)
}

// ofLocked returns the waiting count of a flight, or nil if maxCountedFlights other flights have one.
func (dc *duplicateCounts) ofLocked(id flight.ID, key flight.Key) *flight.CountDuplicates {
	c := dc.waiting[id]
	if c == nil && len(dc.waiting) < maxCountedFlights {
		c = &flight.CountDuplicates{Key: key}
		dc.waiting[id] = c
	}
	return c
}

// TakeDuplicates removes the counts of up to limit flights, in no order, so that none waits as long as a flood of others lasts.
// They are lost unless this node or the leader proposes them.
func (dc *duplicateCounts) TakeDuplicates(limit int) (taken []*flight.CountDuplicates) {
	dc.mu.Lock()
	defer dc.mu.Unlock()
	for id, c := range dc.waiting {
		if len(taken) == limit {
			break
		}
		delete(dc.waiting, id)
		dc.number++
		c.ID = flight.CountID{Source: dc.source, Number: dc.number}
		taken = append(taken, c)
	}
	return taken
}

// runDuplicateFlush proposes the counts every duplicateFlushDelay. It ends when the store closes; Close waits for it.
func (s *Store) runDuplicateFlush() {
	defer s.workers.Done()
	tick := time.NewTicker(duplicateFlushDelay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.flushDuplicates(context.Background())
		case <-s.closing:
			return
		}
	}
}

// flushDuplicates proposes the counts of up to duplicateFlushFlights flights, and returns their number. It proposes none while
// another node leads or the disk is nearly full.
//
// If the process dies before a CountDuplicates is committed, its duplicates are not counted.
func (s *Store) flushDuplicates(ctx context.Context) int {
	if s.leading.Load() == nil || s.disk.low.Load() {
		return 0
	}
	var commands []flight.Command
	for _, c := range s.TakeDuplicates(duplicateFlushFlights) {
		// Load records that are not cached here, where no other caller waits for the read.
		_, _ = s.fsm.read(c.Key.FlightID()) // the fsm reports an error of this read
		commands = append(commands, c)
	}
	_, _ = s.ProposeAll(ctx, commands) // after an error they may be committed, and are not counted again
	return len(commands)
}
