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

// Duplicates are in the ledger within a second, and change nothing else in the flight.
func TestDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		version := openAndReport(t, s, 1).Flight.Version
		require.Zero(t, duplicateStats(t, s, 1))
		for n := range 20 {
			s.CountDuplicate(testKey(1), fmt.Sprint("caller ", n))
		}
		s.CountDuplicate(testKey(2), "somebody") // a key that was never used
		end, err := s.feed.End()
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
		events := readFeed(t, s, end, 10)
		require.Len(t, events, 1)
		require.Equal(t, flight.EventDuplicates, events[0].Kind)
		require.Equal(t, uint64(20), events[0].Count)
		require.Equal(t, "caller 19", events[0].Actor)
		require.Greater(t, events[0].At, f.Duplicates.Last, "the time of the log entry, so that the feed is in the order of time")
		history, err := s.History(f.ID)
		require.NoError(t, err)
		require.Len(t, history, 3, "duplicates add no events to the history")

		for n := range duplicateFlushFlights + 1 {
			s.CountDuplicate(testKey(n+10), "a key that was never used")
		}
		s.CountDuplicate(testKey(1), "the last one")
		require.NoError(t, s.Close(context.Background()), "Close proposes the counts")
		reopened := openStore(t, memConfig(fs))
		require.Equal(t, uint64(21), duplicateStats(t, reopened, 1).Count)
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
	for n := range keys {
		require.Eventually(t, func() bool { // the store's own flush may have taken the last ones
			s.flushDuplicates(context.Background())
			return duplicateStats(t, s, n).Count == callers*each
		}, 10*time.Second, time.Millisecond)
	}
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
		require.Equal(t, 1, s.flushDuplicates(context.Background()))
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
		require.Equal(t, 1, s.flushDuplicates(context.Background()))
		f := cold()
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Equal(t, uint64(2), f.Duplicates.Count)
		require.NotContains(t, own()[string(recordKey(nil, id))], "caller", "the record does not hold the statistics")

		time.Sleep(time.Hour + time.Second)
		s.CountDuplicate(key, "caller 3")
		require.Equal(t, 1, s.flushDuplicates(context.Background()))
		_, err := s.Expire(context.Background(), NoLimit)
		require.NoError(t, err)
		require.Nil(t, cold().Duplicates)
		require.Len(t, own(), 1, "a tombstone has only its record")
	})
}

// A flood of duplicates of ever different keys neither fills the memory nor is written at once, and each of its counts is written.
func TestDuplicates_Bounded(t *testing.T) {
	counts := newDuplicateCounts(time.Now)
	for n := range maxCountedFlights + 1000 {
		counts.CountDuplicate(testKey(n), "flood")
	}
	counts.CountDuplicate(testKey(0), "again")
	require.Equal(t, maxCountedFlights, len(counts.waiting))
	require.Equal(t, uint64(2), counts.waiting[testKey(0).FlightID()].Stats.Count, "flights with a count are still counted")
	taken, numbers := make(map[flight.Key]bool), make(map[flight.CountID]bool)
	for len(counts.waiting) > 0 {
		batch := counts.TakeDuplicates(duplicateFlushFlights)
		require.Equal(t, duplicateFlushFlights, len(batch))
		for _, c := range batch {
			taken[c.Key], numbers[c.ID] = true, true
		}
	}
	require.Equal(t, maxCountedFlights, len(taken), "each flight once")
	require.Equal(t, maxCountedFlights, len(numbers), "each with a number of its own")
}

// Counts wait while this node does not lead. Another node that leads takes them, and adds them to its own.
func TestDuplicates_WaitForLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, leader := openStore(t, memConfig(vfs.NewMem())), openStore(t, memConfig(vfs.NewMem()))
		openAndReport(t, leader, 1)
		s.leading.Store(nil)
		for n := range 12 {
			s.CountDuplicate(testKey(1), fmt.Sprint("follower ", n))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		leader.CountDuplicate(testKey(1), "leader")
		for _, c := range s.TakeDuplicates(10) {
			leader.AddDuplicates(c)
		}
		leader.CountDuplicate(testKey(1), "leader again")
		require.Empty(t, s.TakeDuplicates(10))
		require.Equal(t, 1, leader.flushDuplicates(context.Background()))
		sum := duplicateStats(t, leader, 1)
		require.Equal(t, uint64(14), sum.Count)
		require.Len(t, sum.Callers, flight.MaxCallers)
		require.Equal(t, "follower 5", sum.Callers[0].Actor)
		require.Equal(t, "leader again", sum.Callers[7].Actor)
	})
}

// BenchmarkDuplicate measures CountDuplicate, over 50,000 keys in turn.
func BenchmarkDuplicate(b *testing.B) {
	counts := newDuplicateCounts(time.Now)
	keys := make([]flight.Key, 50_000)
	for n := range keys {
		keys[n] = testKey(n)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			counts.CountDuplicate(keys[n*7919%len(keys)], "host:1")
		}
	})
}
