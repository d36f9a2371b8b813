package clusterstore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func duplicateStats(t *testing.T, s *Store, n int) flight.DuplicateStats {
	t.Helper()
	sum, err := s.DuplicateStats(testKey(n).FlightID())
	require.NoError(t, err)
	return sum
}

// Duplicates are visible at once, are in the ledger within a second, and change nothing else in the flight.
func TestDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		version := openAndReport(t, s, 1).Flight.Version
		require.Zero(t, duplicateStats(t, s, 1))
		for n := range 20 {
			s.CountDuplicate(testKey(1), fmt.Sprint("caller ", n))
			require.Equal(t, uint64(n+1), duplicateStats(t, s, 1).Count, "a duplicate is visible at once")
		}
		s.CountDuplicate(testKey(2), "somebody") // a key that was never used
		end, err := s.FeedEnd()
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Equal(t, uint64(20), f.Duplicates.Count, "the count is in the ledger after a second")
		require.Equal(t, version, f.Version, "a duplicate creates no new version")
		require.Len(t, f.Duplicates.Callers, flight.MaxCallers)
		require.Equal(t, "caller 12", f.Duplicates.Callers[0].Actor)
		require.Equal(t, "caller 19", f.Duplicates.Callers[7].Actor)
		require.Equal(t, uint64(20), duplicateStats(t, s, 1).Count)
		require.Zero(t, duplicateStats(t, s, 2))
		told := readFeed(t, s, end, 10)
		require.Len(t, told, 1)
		require.Equal(t, flight.EventDuplicates, told[0].Kind)
		require.Equal(t, uint64(20), told[0].Count)
		require.Equal(t, "caller 19", told[0].Actor)
		require.Greater(t, told[0].At, f.Duplicates.Last, "the time of the log entry, so that the feed is in the order of time")
		history, err := s.History(f.ID)
		require.NoError(t, err)
		require.Len(t, history, 3, "duplicates add no events to the history")

		s.CountDuplicate(testKey(1), "the last one")
		require.NoError(t, s.Close(context.Background()), "Close proposes the counts")
		again := openStore(t, memConfig(fs))
		require.Equal(t, uint64(21), duplicateStats(t, again, 1).Count)
	})
}

// With many callers and a reader, the count is never larger than the number of duplicates, never decreases, and is
// exact in the end.
func TestDuplicates_CountedOnce(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	const keys, callers, each = 50, 8, 500
	for n := range keys {
		openAndReport(t, s, n)
	}
	var counting sync.WaitGroup
	for c := range callers {
		counting.Go(func() {
			for i := range each * keys {
				s.CountDuplicate(testKey(i%keys), fmt.Sprint(c))
			}
		})
	}
	counted := make(chan struct{})
	go func() { counting.Wait(); close(counted) }()
	var seen uint64
	for over := false; !over; {
		select {
		case <-counted:
			over = true
		default:
		}
		now := duplicateStats(t, s, 7).Count
		require.GreaterOrEqual(t, now, seen)
		require.LessOrEqual(t, now, uint64(callers*each))
		seen = now
		s.flushDuplicates(context.Background())
	}
	for s.flushDuplicates(context.Background()) {
	}
	for n := range keys {
		f, err := s.Flight(testKey(n).FlightID())
		require.NoError(t, err)
		require.Equal(t, uint64(callers*each), f.Duplicates.Count)
		require.Equal(t, uint64(callers*each), duplicateStats(t, s, n).Count)
	}
}

// A count that is committed, but whose proposal has not been answered yet, is not counted twice.
func TestDuplicates_ReadBetweenCommitAndAnswer(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	openAndReport(t, s, 1)
	s.duplicates.flushLock <- struct{}{} // blocks the store's own flush
	defer func() { <-s.duplicates.flushLock }()
	for range 3 {
		s.CountDuplicate(testKey(1), "a")
	}
	batch := s.duplicates.takeBatch()
	require.Equal(t, uint64(3), duplicateStats(t, s, 1).Count, "being written")
	propose(t, s, batch[testKey(1).FlightID()])
	require.Equal(t, uint64(3), duplicateStats(t, s, 1).Count, "in the ledger")
	s.CountDuplicate(testKey(1), "b")
	require.Equal(t, uint64(4), duplicateStats(t, s, 1).Count)
	s.duplicates.clearWriting()
	require.Equal(t, uint64(4), duplicateStats(t, s, 1).Count)
}

// Under a flood of duplicates of ever different keys, the newest are written first, because their records are cached.
// None waits as long as the flood lasts.
func TestDuplicates_Flood(t *testing.T) {
	counters := newDuplicateCounters(time.Now)
	numberOf := make(map[flight.ID]int)
	const first, wave = 20_000, 1000
	flood := func(upTo int) {
		for n := len(numberOf); n < upTo; n++ {
			id := testKey(n).FlightID()
			numberOf[id] = n
			counters.add(id, testKey(n), "somebody")
		}
	}
	flood(first)
	written := make(map[flight.ID]bool)
	for counters.flights.Load() > 0 {
		latest := len(numberOf)
		if latest < 2*first {
			flood(latest + wave)
		}
		batch := counters.takeBatch()
		require.LessOrEqual(t, len(batch), duplicateFlushFlights)
		fresh, old := 0, 0
		for id := range batch {
			require.False(t, written[id], "a count is written once")
			written[id] = true
			switch n := numberOf[id]; {
			case n >= latest:
				fresh++
			case n < first:
				old++
			}
		}
		if latest < 2*first {
			require.Greater(t, fresh, len(batch)*3/4, "the newest counts go first")
			require.Greater(t, old, 0, "the oldest counts are included")
		}
		counters.clearWriting()
	}
	require.Len(t, written, len(numberOf), "all counts are written in the end")
}

// The record of a counted flight is cached before its CountDuplicates is applied. A disk read during the apply would delay all
// other commands.
func TestDuplicates_RecordsReadBeforeApply(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	openAndReport(t, s, 1)
	s.fsm.flush()
	s.fsm.cache.clear()
	s.CountDuplicate(testKey(1), "somebody")
	s.flushDuplicates(context.Background())
	known, _ := s.fsm.cache.get(testKey(1).FlightID())
	require.NotNil(t, known, "CountDuplicate itself caches no record")
	require.Equal(t, uint64(1), known.flight.Duplicates.Count)
}

// A duplicate writes only the row of duplicate statistics, not the record, which may be a hundred times as long.
// Readers see both as one flight, also after the flight has changed, and both are deleted together.
func TestDuplicates_SeparateRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		key := testKey(1)
		id := key.FlightID()
		open := openOf(s, key, 1)
		open.Submission.Policy.Retention = time.Hour
		token := propose(t, s, open).Token
		openAndReport(t, s, 2)
		cold := func() *flight.Flight {
			t.Helper()
			s.fsm.flush()
			s.fsm.cache.clear()
			f, err := s.Flight(id)
			require.NoError(t, err)
			return f
		}
		own := func() map[string]string {
			t.Helper()
			rows := dump(t, s)
			maps.DeleteFunc(rows, func(key, _ string) bool { return len(key) <= kindOffset || key[1:kindOffset] != string(id[:]) })
			return rows
		}
		before := own()
		s.CountDuplicate(key, "caller 1")
		require.False(t, s.flushDuplicates(context.Background()))
		s.fsm.mu.Lock()
		touched := *s.fsm.active.dirty[id]
		s.fsm.mu.Unlock()
		require.True(t, touched.statsChanged)
		require.False(t, touched.changed, "the record must not be written again")
		require.Equal(t, uint64(1), cold().Duplicates.Count)
		after := own()
		require.Contains(t, after, string(duplicatesKey(nil, id)))
		delete(after, string(duplicatesKey(nil, id)))
		require.Equal(t, before, after)

		propose(t, s, reportOf(key, token, "done"))
		s.CountDuplicate(key, "caller 2")
		require.False(t, s.flushDuplicates(context.Background()))
		f := cold()
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Equal(t, uint64(2), f.Duplicates.Count)
		require.NotContains(t, own()[string(recordKey(nil, id))], "caller", "the record does not hold the statistics")

		time.Sleep(time.Hour + time.Second)
		s.CountDuplicate(key, "caller 3")
		require.False(t, s.flushDuplicates(context.Background()))
		_, err := s.Expire(context.Background(), NoLimit)
		require.NoError(t, err)
		require.Nil(t, cold().Duplicates)
		require.Len(t, own(), 1, "a tombstone has only its record")
	})
}

// A flood of duplicates of ever different keys neither fills the memory nor is written at once.
func TestDuplicates_Bounded(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	for s.flushDuplicates(context.Background()) {
	}
	counters := newDuplicateCounters(time.Now)
	for n := range maxCountedFlights + 1000 {
		counters.add(testKey(n).FlightID(), testKey(n), "flood")
	}
	require.Equal(t, int64(maxCountedFlights), counters.flights.Load())
	counters.add(testKey(0).FlightID(), testKey(0), "again")
	_, waiting := counters.unwritten(testKey(0).FlightID())
	require.Equal(t, uint64(2), waiting.Count, "flights with a counter are still counted")
	taken, most := 0, 0
	for range 1000 {
		batch := counters.takeBatch()
		taken += len(batch)
		most = max(most, len(batch))
	}
	require.Equal(t, maxCountedFlights, taken, "each flight once")
	require.Equal(t, duplicateFlushFlights, most)
	require.Zero(t, counters.flights.Load())
}

// Counts that were definitely not committed are kept, and are written once there is a leader.
func TestDuplicates_WaitForLeader(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	openAndReport(t, s, 1)
	lead := s.leading.Swap(nil)
	for range 12 {
		s.CountDuplicate(testKey(1), "a")
	}
	require.True(t, s.flushDuplicates(context.Background()))
	require.Equal(t, uint64(12), duplicateStats(t, s, 1).Count)
	s.leading.Store(lead)
	require.False(t, s.flushDuplicates(context.Background()))
	require.Equal(t, uint64(12), duplicateStats(t, s, 1).Count)

	key := testKey(1)
	c := &flight.CountDuplicates{Key: key, Stats: flight.DuplicateStats{Count: 3, First: 1, Last: 2, Callers: []flight.Caller{{Actor: "x", At: 1}, {Actor: "y", At: 2}}}}
	s.duplicates.requeue(key.FlightID(), c)
	s.CountDuplicate(key, "z")
	_, waiting := s.duplicates.unwritten(key.FlightID())
	require.Equal(t, uint64(4), waiting.Count)
	require.Equal(t, []string{"x", "y", "z"}, []string{waiting.Callers[0].Actor, waiting.Callers[1].Actor, waiting.Callers[2].Actor})
}

// A requeued count is kept even if others have used its capacity meanwhile. At no moment is it missing or counted
// twice.
func TestDuplicates_RequeueKeepsAll(t *testing.T) {
	counters := newDuplicateCounters(time.Now)
	for n := range maxCountedFlights {
		counters.add(testKey(n).FlightID(), testKey(n), "somebody")
	}
	batch := counters.takeBatch()
	for n := range duplicateFlushFlights {
		counters.add(testKey(maxCountedFlights+n).FlightID(), testKey(maxCountedFlights+n), "somebody else")
	}
	for id, c := range batch {
		written, waiting := counters.unwritten(id)
		require.Equal(t, c, written)
		require.Zero(t, waiting.Count)
		counters.requeue(id, c)
		written, waiting = counters.unwritten(id)
		require.Nil(t, written)
		require.Equal(t, uint64(1), waiting.Count)
	}
	counters.clearWriting()
	require.Equal(t, int64(maxCountedFlights+duplicateFlushFlights), counters.flights.Load())
}

// BenchmarkDuplicate measures CountDuplicate, over 100,000 keys in turn.
func BenchmarkDuplicate(b *testing.B) {
	counters := newDuplicateCounters(time.Now)
	keys, ids := make([]flight.Key, 100_000), make([]flight.ID, 100_000)
	for n := range keys {
		keys[n] = testKey(n)
		ids[n] = keys[n].FlightID()
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			n := n * 7919 % len(keys)
			counters.add(ids[n], keys[n], "host:1")
		}
	})
}
