package clusterstore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func allEvents(*flight.FeedEvent) bool { return true }

// readFeed reads the whole feed after a position, in pages.
func readFeed(t *testing.T, s *Store, after flight.Version, limit int) []flight.FeedEvent {
	t.Helper()
	var events []flight.FeedEvent
	for {
		page, err := s.feed.Read(after, limit)
		require.NoError(t, err)
		require.True(t, page.More || !after.After(page.Next))
		events = append(events, page.Events...)
		after = page.Next
		if !page.More {
			return events
		}
	}
}

// readWholeFeed returns the events of all histories, in the order of the log.
func readWholeFeed(t *testing.T, s *Store) []flight.FeedEvent {
	t.Helper()
	var events []flight.FeedEvent
	for n := range 30 {
		history, err := s.History(testKey(n).FlightID())
		require.NoError(t, err)
		for _, e := range history {
			events = append(events, flight.FeedEvent{Key: testKey(n), HistoryEvent: e})
		}
	}
	slices.SortStableFunc(events, func(a, b flight.FeedEvent) int {
		return cmp.Or(cmp.Compare(a.Version.Index, b.Version.Index), cmp.Compare(a.Version.Pos, b.Version.Pos))
	})
	return events
}

// notExpired omits the ends of retentions and the changes of documents, which no history holds.
func notExpired(events []flight.FeedEvent) []flight.FeedEvent {
	return slices.DeleteFunc(slices.Clone(events), func(e flight.FeedEvent) bool { return e.Kind == flight.EventExpired || e.Key.IsZero() })
}

// The feed returns the events of all histories, before and after the flush, and after a restart.
func TestFeed_MatchesHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		everything(t, s)
		unwritten := readFeed(t, s, flight.Version{}, 1000)
		want := readWholeFeed(t, s)
		require.NotEmpty(t, want)
		require.Equal(t, want, notExpired(unwritten))
		expired := 0
		for _, e := range unwritten {
			if e.Kind == flight.EventExpired {
				expired++
				require.NotZero(t, e.At)
			}
		}
		require.Equal(t, int(s.Counts()[flight.StateExpired]), expired, "the feed has the end of a retention, although the history is deleted")
		require.NotZero(t, expired)
		require.NoError(t, s.Close(context.Background()))

		reopened := openStore(t, memConfig(fs))
		require.Equal(t, unwritten, readFeed(t, reopened, flight.Version{}, 1000))
		for _, limit := range []int{1, 2, 7} {
			require.Equal(t, unwritten, readFeed(t, reopened, flight.Version{}, limit), "in pages of about %d", limit)
		}
	})
}

// After every position the feed returns exactly the later events.
func TestFeedResumesAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		everything(t, s)
		all := readFeed(t, s, flight.Version{}, 1000)
		for _, e := range all {
			rest := slices.DeleteFunc(slices.Clone(all), func(o flight.FeedEvent) bool { return !o.Version.After(e.Version) })
			require.Equal(t, len(rest), len(readFeed(t, s, e.Version, 3)))
		}
		end, err := s.feed.End()
		require.NoError(t, err)
		require.Empty(t, readFeed(t, s, end, 10))
		_, err = s.feed.Read(flight.Version{Index: end.Index + 1}, 10)
		require.ErrorAs(t, err, new(*flight.FuturePositionError))
	})
}

func TestFeedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		everything(t, s)
		all := readFeed(t, s, flight.Version{}, 1000)
		end, err := s.feed.End()
		require.NoError(t, err)
		for n := range len(all) + 10 {
			page, err := s.feed.Last(n, allEvents, nil)
			require.NoError(t, err)
			require.Equal(t, end, page.Next)
			from := max(0, len(all)-n)
			for n > 0 && from > 0 && all[from-1].Version == all[from].Version {
				from-- // the events of one command are not split
			}
			want := all[from:]
			require.Len(t, page.Events, len(want))
			require.True(t, slices.Equal(want, page.Events))
		}
		doubts, err := s.feed.Last(3, func(e *flight.FeedEvent) bool { return e.Kind == flight.EventInDoubt }, nil)
		require.NoError(t, err)
		require.Len(t, doubts.Events, 3)
		border := all[len(all)/2].At
		young, err := s.feed.Last(1000, allEvents, func(e *flight.FeedEvent) bool { return e.At < border })
		require.NoError(t, err)
		require.NotEmpty(t, young.Events)
		require.Less(t, len(young.Events), len(all))
	})
}

// A waiting reader is woken by new entries and by Close.
func TestFeedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(context.Background(), memConfig(vfs.NewMem()))
		require.NoError(t, err)
		end, err := s.feed.End()
		require.NoError(t, err)
		woken := make(chan error, 1)
		go func() { woken <- s.feed.Await(context.Background(), end) }()
		synctest.Wait()
		require.Empty(t, woken)
		openAndReport(t, s, 1)
		require.NoError(t, <-woken)
		require.Len(t, readFeed(t, s, end, 10), 3)

		end, err = s.feed.End()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(t, s.feed.Await(ctx, end), context.DeadlineExceeded)
		go func() { woken <- s.feed.Await(context.Background(), end) }()
		synctest.Wait()
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, <-woken, ErrClosed)
	})
}

// A position before the start of the log returns a CompactedError with the first complete position; also after a
// restart, and when the state came from a snapshot and the log is empty.
func TestFeed_CompactedError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		cfg := memConfig(fs)
		cfg.Log.Trailing = 2000
		s, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		for n := range 20 {
			openAndReport(t, s, n)
		}
		before := readFeed(t, s, flight.Version{}, 1000)
		require.NoError(t, s.takeSnapshot())
		check := func(s *Store) {
			t.Helper()
			_, err := s.feed.Read(flight.Version{Index: 2}, 10)
			var cut *flight.CompactedError
			require.ErrorAs(t, err, &cut)
			first, _ := s.log.FirstIndex()
			require.Equal(t, endOfEntry(first-1), cut.First)
			rest := readFeed(t, s, cut.First, 1000)
			require.NotEmpty(t, rest)
			require.Equal(t, before[len(before)-len(rest):], rest)
			last, err := s.feed.Last(1000, allEvents, nil)
			require.NoError(t, err)
			require.Equal(t, rest, last.Events)
			for _, v := range []flight.Version{{Index: first - 1}, {}} { // the number of commands in the lost entry is unknown
				_, err = s.feed.Read(v, 10)
				require.ErrorAs(t, err, &cut)
			}
		}
		check(s)
		require.NoError(t, s.Close(context.Background()))
		check(openStore(t, cfg))
	})
}

// Readers that stop and resume at any position see every event once and in order while the ledger is written and the
// log is truncated. They do not delay the writers.
func TestFeedUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cfg := memConfig(vfs.NewMem())
	s := openStore(t, cfg)
	const flights, readers = 300, 4
	done := make(chan []flight.FeedEvent, readers)
	for r := range readers {
		go func() {
			random := rand.New(rand.NewPCG(seed, uint64(r)))
			var seen []flight.FeedEvent
			var after flight.Version
			for len(seen) < 3*flights {
				page, err := s.feed.Read(after, 1+random.IntN(50))
				if err != nil {
					break
				}
				seen = append(seen, page.Events...)
				after = page.Next
				if n := len(page.Events); n > 0 && random.IntN(3) == 0 { // interrupted within a page: continue after an event
					stop := page.Events[random.IntN(n)].Version
					seen = slices.DeleteFunc(seen, func(e flight.FeedEvent) bool { return e.Version.After(stop) })
					after = stop
					continue
				}
				if !page.More && len(seen) < 3*flights && s.feed.Await(t.Context(), after) != nil {
					break
				}
			}
			done <- seen
		}()
	}
	var flying sync.WaitGroup
	for n := range flights {
		flying.Go(func() { openAndReport(t, s, n) })
	}
	want := []flight.EventKind{flight.EventSubmitted, flight.EventOpened, flight.EventReported}
	flying.Wait()
	for range readers {
		seen := <-done
		require.Len(t, seen, 3*flights)
		kinds := make(map[flight.Key][]flight.EventKind)
		for i, e := range seen {
			require.False(t, i > 0 && seen[i-1].Version.After(e.Version), "out of order")
			kinds[e.Key] = append(kinds[e.Key], e.Kind)
		}
		for n := range flights {
			require.Equal(t, want, kinds[testKey(n)])
		}
	}
}

// BenchmarkFeed measures the cost of one event for one reader on an old part of the log.
func BenchmarkFeed(b *testing.B) {
	s := openStore(b, memConfig(vfs.NewMem()))
	const flights = 5000
	var flying sync.WaitGroup
	for caller := range 64 {
		flying.Go(func() {
			for n := caller; n < flights; n += 64 {
				openAndReport(b, s, n)
			}
		})
	}
	flying.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	var after flight.Version
	for n := 0; n < b.N; {
		page, err := s.feed.Read(after, 256)
		require.NoError(b, err)
		n += len(page.Events)
		if after = page.Next; !page.More {
			after = flight.Version{}
		}
	}
}

// A hole in the log, as a crash can leave it, is one gap, however many entries are missing. The
// events before it are read first.
func TestFeed_OneGapPerHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		for n := range 20 {
			openAndReport(t, s, n)
		}
		all := readFeed(t, s, flight.Version{}, 1000)
		require.NoError(t, s.log.DeleteRange(20, 30))
		var read []flight.FeedEvent
		var gaps []flight.Version
		for after := (flight.Version{}); ; {
			page, err := s.feed.Read(after, 1000)
			var cut *flight.CompactedError
			if errors.As(err, &cut) {
				gaps, after = append(gaps, after, cut.First), cut.First
				continue
			}
			require.NoError(t, err)
			read, after = append(read, page.Events...), page.Next
			if !page.More {
				break
			}
		}
		require.Len(t, gaps, 2, "%v", gaps)
		require.Equal(t, uint64(19), gaps[0].Index)
		require.Equal(t, endOfEntry(30), gaps[1])
		want := slices.DeleteFunc(slices.Clone(all), func(e flight.FeedEvent) bool { return e.Version.Index >= 20 && e.Version.Index <= 30 })
		require.Equal(t, want, read)
	})
}

// A snapshot leaves LogConfig.Trailing bytes of entries, also those of an earlier process.
func TestTrailingCountsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memConfig(vfs.NewMem())
		cfg.Log.Trailing = 100_000
		s, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		n := 0
		openThem := func(flights int) {
			for range flights {
				n++
				open := openOf(s, testKey(n), n)
				open.Submission.Input = flight.NewBlob("text/plain", make([]byte, 700), flight.MaxInput)
				propose(t, s, open)
			}
		}
		openThem(50)
		size := s.log.Appended() / 50
		require.InDelta(t, 1000, size, 200)
		require.NoError(t, s.takeSnapshot())
		first, _ := s.log.FirstIndex()
		require.Equal(t, uint64(1), first, "50 kB")
		require.NoError(t, s.Close(context.Background()))
		s = openStore(t, cfg)
		openThem(80)
		require.NoError(t, s.takeSnapshot())
		first, _ = s.log.FirstIndex()
		last, _ := s.log.LastIndex()
		require.InDelta(t, 100_000/size, last-first, 15, "130 kB")
	})
}
