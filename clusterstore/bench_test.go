package clusterstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// callers runs do b.N times from that many goroutines, each with numbers of its own.
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

// BenchmarkFlights is what the ledger costs a flight: an Open of a new key, then its Report.
func BenchmarkFlights(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			s := openStore(b, Config{Dir: b.TempDir()})
			callers(b, n, func(i int) { fly(b, s, i) })
		})
	}
}

// emptyMachine is a state machine that does nothing.
type emptyMachine struct{ raft.FSM }

func (emptyMachine) Apply(*raft.Log) any { return nil }

// BenchmarkRawApplies is two single applies a flight on our log with a state machine that does nothing: the floor.
// Batched, it is the same with the packer's group commit in front.
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
			k := &packer{raft: rawRaft(b), now: func() stamp { return stamp{now: 1} }, pending: new(pendingPackets)}
			data := make([]byte, 300)
			callers(b, n, func(int) {
				for range 2 {
					_, err := k.do(context.Background(), nil, data)
					require.NoError(b, err)
				}
			})
		})
	}
}

func rawRaft(b *testing.B) *raft.Raft {
	cfg, err := Config{Dir: b.TempDir(), NodeID: "raw"}.withDefaults()
	require.NoError(b, err)
	s := &Store{cfg: cfg, notify: make(chan bool, 16)}
	log, err := pebblelog.Open(cfg.Dir, pebblelog.Options(s.pebbleOptions()))
	require.NoError(b, err)
	transport, voters := s.neighbours()
	require.NoError(b, log.Bootstrap(raft.Configuration{Servers: voters}))
	r, err := raft.NewRaft(s.raftConfig(false), emptyMachine{}, log, log, raft.NewDiscardSnapshotStore(), transport)
	require.NoError(b, err)
	require.True(b, <-s.notify)
	b.Cleanup(func() {
		require.NoError(b, r.Shutdown().Error())
		require.NoError(b, log.Close())
	})
	return r
}

// BenchmarkReads reads finished flights at random out of 100,000, more than are kept decoded.
func BenchmarkReads(b *testing.B) {
	const keys = 100_000
	s := openStore(b, Config{Dir: b.TempDir()})
	ids := make([]flight.ID, keys)
	var group sync.WaitGroup
	for w := range 256 {
		group.Go(func() {
			for i := w; i < keys; i += 256 {
				ids[i] = testKey(i).FlightID()
				fly(b, s, i)
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

// BenchmarkAbsent asks the state for keys that were never used, beside 200,000 that were: what every new key costs.
func BenchmarkAbsent(b *testing.B) {
	const keys = 200_000
	s := openStore(b, Config{Dir: b.TempDir()})
	callers := 256
	var group sync.WaitGroup
	for w := range callers {
		group.Go(func() {
			for i := w; i < keys; i += callers {
				fly(b, s, i)
			}
		})
	}
	group.Wait()
	s.machine.flush()
	b.ResetTimer()
	for i := range b.N {
		if f, err := s.state.record(testKey(keys + i).FlightID()); f != nil || err != nil {
			b.Fatal(f, err)
		}
	}
}
