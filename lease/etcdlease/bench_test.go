package etcdlease_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// BenchmarkClaim measures claims by many callers over the in-process client, with and without releases, each key once.
func BenchmarkClaim(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		for _, release := range []bool{false, true} {
			b.Run(fmt.Sprintf("callers=%d/release=%t", callers, release), func(b *testing.B) {
				benchClaim(b, callers, release, etcdlease.Tuning{})
			})
		}
	}
}

func nonceOf(i int64) (n flight.Nonce) {
	binary.BigEndian.PutUint64(n[:], uint64(i))
	return n
}

// BenchmarkTuning compares numbers of workers and batch sizes with 256 callers.
func BenchmarkTuning(b *testing.B) {
	for _, lanes := range []int{1, 2, 3, 4} {
		for _, size := range []int{30, 60, 100} {
			b.Run(fmt.Sprintf("lanes=%d/size=%d", lanes, size), func(b *testing.B) {
				benchClaim(b, 256, true, etcdlease.Tuning{Workers: lanes, BatchSize: size})
			})
		}
	}
}

func benchClaim(b *testing.B, callers int, release bool, tuning etcdlease.Tuning) {
	server := etcdtest.Start(b)
	client := server.InProcess(b)
	var batches, ops atomic.Int64
	lessor, err := etcdlease.New(etcdlease.Config{
		Client: client, Server: server.Embedded(), Deployment: "bench", Ledger: leasetest.NewLedger(), Tuning: tuning,
		Events: lease.Events{Committed: func(n int, _ time.Duration, _ error) { batches.Add(1); ops.Add(int64(n)) }},
	})
	require.NoError(b, err)
	ctx := context.Background()
	session, err := lessor.NewSession(ctx, lease.Spec{Owner: "bench:1", AutoRenew: true})
	require.NoError(b, err)
	keys := make([]flight.Key, b.N)
	for i := range keys {
		keys[i] = flight.MustKey(fmt.Sprintf("bench/charge-card/order-%d", i))
	}
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				l, err := session.Reserve(ctx, keys[i], nonceOf(i))
				if err == nil {
					err = l.Claim(ctx)
				}
				if err != nil {
					b.Error(err)
					return
				}
				if release {
					l.Release()
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
	b.ReportMetric(float64(ops.Load())/float64(max(batches.Load(), 1)), "ops/batch")
	err = lessor.Close(ctx)
	require.NoError(b, err)
}

// BenchmarkSteady claims and releases at full rate while the Compactor runs, and reports memory and disk. Compare runs
// of -benchtime 30s and longer. The tuned server keeps fewer raft entries in memory, each of which is a batch of
// claims, and compacts in larger steps.
func BenchmarkSteady(b *testing.B) {
	for _, tuned := range []bool{false, true} {
		b.Run(fmt.Sprintf("tuned=%t", tuned), func(b *testing.B) { benchSteady(b, tuned) })
	}
}

func benchSteady(b *testing.B, tuned bool) {
	server := etcdtest.StartWith(b, func(cfg *embed.Config) {
		if tuned {
			cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 1000, 200
			cfg.CompactionBatchLimit, cfg.CompactionSleepInterval = 10_000, time.Millisecond
		}
	})
	lessor, err := etcdlease.New(etcdlease.Config{Client: server.InProcess(b), Server: server.Embedded(), Deployment: "bench", Ledger: leasetest.NewLedger()})
	require.NoError(b, err)
	admin := server.InProcess(b)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); (&etcdlease.Compactor{Client: admin, Member: server.Member()}).Run(ctx) }()
	session, err := lessor.NewSession(ctx, lease.Spec{Owner: "bench:1", AutoRenew: true})
	require.NoError(b, err)
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 256 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				l, err := session.Reserve(ctx, flight.MustKey(fmt.Sprintf("bench/charge-card/order-%d", i)), nonceOf(i))
				if err == nil {
					err = l.Claim(ctx)
				}
				if err != nil {
					b.Error(err)
					return
				}
				l.Release()
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
	status, err := admin.Status(ctx, "")
	require.NoError(b, err)
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(status.DbSize)/1e6, "MB-file")
	b.ReportMetric(float64(mem.HeapAlloc)/1e6, "MB-heap")
	stop()
	<-ended
	err = lessor.Close(context.Background())
	require.NoError(b, err)
}
