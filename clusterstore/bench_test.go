package clusterstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// callers runs do b.N times from n goroutines, each time with another number.
func callers(b *testing.B, n int, do func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	for range n {
		group.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				do(int(i))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "flights/s")
}

// BenchmarkFlights measures the ledger's cost of a flight: an Open of a new key, then its Report.
func BenchmarkFlights(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := openStore(b, Config{Dir: b.TempDir()})
			callers(b, n, func(i int) { openAndReport(b, s, i) })
		})
	}
}

// emptyFSM is a raft state machine that does nothing.
type emptyFSM struct{ raft.FSM }

func (emptyFSM) Apply(*raft.Log) any { return nil }

// BenchmarkRawApplies measures the lower limit: two applies per flight on our log with an empty state machine, one by
// one and through the batcher.
func BenchmarkRawApplies(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("unbatched/callers=%d", n), func(b *testing.B) {
			r := rawRaft(b)
			data := make([]byte, 300)
			callers(b, n, func(int) {
				for range 2 {
					require.NoError(b, r.ApplyLog(raft.Log{Data: data}, 0).Error())
				}
			})
		})
		b.Run(fmt.Sprintf("batched/callers=%d", n), func(b *testing.B) {
			k := &batcher{raft: rawRaft(b), now: func() stamp { return stamp{now: 1} }, pending: new(pendingBatches)}
			data := make([]byte, 300)
			callers(b, n, func(int) {
				for range 2 {
					_, err := k.propose(context.Background(), nil, data)
					require.NoError(b, err)
				}
			})
		})
	}
}

func rawRaft(b *testing.B) *raft.Raft {
	cfg, err := Config{Dir: b.TempDir(), NodeID: "raw"}.withDefaults()
	require.NoError(b, err)
	s := &Store{storage: storage{cfg: cfg}, raftNotify: make(chan bool, 16)}
	log, err := pebblelog.Open(cfg.Dir, pebblelog.Options(s.pebbleOptions()))
	require.NoError(b, err)
	transport := s.raftTransport()
	first, err := foundingConfiguration([]Voter{{ID: "raw", Address: "raw"}}, Voter{ID: "raw", Address: "raw"})
	require.NoError(b, err)
	require.NoError(b, log.Bootstrap(first))
	r, err := raft.NewRaft(s.raftConfig(false), emptyFSM{}, log, log, raft.NewDiscardSnapshotStore(), transport)
	require.NoError(b, err)
	require.True(b, <-s.raftNotify)
	b.Cleanup(func() {
		require.NoError(b, r.Shutdown().Error())
		require.NoError(b, log.Close())
	})
	return r
}

// BenchmarkReads reads random finished flights out of 100,000, more than the cache holds.
func BenchmarkReads(b *testing.B) {
	const keys = 100_000
	s := openStore(b, Config{Dir: b.TempDir()})
	ids := make([]flight.ID, keys)
	var group sync.WaitGroup
	for w := range 256 {
		group.Go(func() {
			for i := w; i < keys; i += 256 {
				ids[i] = testKey(i).FlightID()
				openAndReport(b, s, i)
			}
		})
	}
	group.Wait()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f, err := s.Flight(ids[rand.IntN(keys)])
			if err != nil || f.State != flight.StateSucceeded {
				b.Fatal(f, err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
}

// BenchmarkAbsent reads keys that were never used, beside 200,000 used ones: the cost of each new key.
func BenchmarkAbsent(b *testing.B) {
	const keys = 200_000
	s := openStore(b, Config{Dir: b.TempDir()})
	callers := 256
	var group sync.WaitGroup
	for w := range callers {
		group.Go(func() {
			for i := w; i < keys; i += callers {
				openAndReport(b, s, i)
			}
		})
	}
	group.Wait()
	s.fsm.flush()
	b.ResetTimer()
	for i := range b.N {
		f, err := s.state.record(testKey(keys + i).FlightID())
		require.Nil(b, f, "%v %v", f, err)
		require.NoError(b, err, "%v %v", f, err)
	}
}

// A page of live flights costs the same, however many there are behind it.
func BenchmarkListLive(b *testing.B) {
	for _, live := range []int{1000, 30_000} {
		b.Run(fmt.Sprint(live), func(b *testing.B) {
			s := openStore(b, memConfig(vfs.NewMem()))
			for n := range live / 100 {
				commands := make([]flight.Command, 100)
				for i := range commands {
					commands[i] = &flight.Submit{Key: testKey(100*n + i), Queue: &flight.Queue{}}
				}
				_, err := s.ProposeAll(b.Context(), commands)
				require.NoError(b, err)
			}
			for b.Loop() {
				page, err := s.List(flight.Query{States: []flight.State{flight.StateReady}, Limit: 50})
				if err != nil || len(page.Flights) != 50 || !page.More {
					b.Fatal(len(page.Flights), err)
				}
			}
		})
	}
}
