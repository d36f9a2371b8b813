package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// The cost of the HTTP interface and its client, both in this process over loopback, with a ledger in memory that keeps
// a history.
func benchClient(b *testing.B) (*httpapitest.Fake, *client.Client) {
	fake := httpapitest.New(b)
	server := httptest.NewServer(httpapi.New(fake.Config()))
	b.Cleanup(server.Close)
	c, err := client.Connect(b.Context(), server.URL, client.WithoutSpool())
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return fake, c
}

func BenchmarkDoNewKeys(b *testing.B) {
	_, c := benchClient(b)
	var n atomic.Int64
	b.ReportAllocs()
	before := cpuTime(b)
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			charge := call(`{"amount":100}`)
			charge.Key = flight.MustKey(fmt.Sprintf("default/charge/order-%d", n.Add(1)))
			if _, err := c.Do(context.Background(), charge, succeedingHandler(`{"id":"ch_1"}`)); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "flights/s")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func BenchmarkReplay(b *testing.B) {
	_, c := benchClient(b)
	const keys = 1000
	charge := call(`{"amount":100}`)
	for i := range keys {
		charge.Key = flight.MustKey(fmt.Sprintf("default/charge/order-%d", i))
		_, err := c.Do(b.Context(), charge, succeedingHandler(`{"id":"ch_1"}`))
		require.NoError(b, err)
	}
	var n atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	h := succeedingHandler(`1`)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			charge := call(`{"amount":100}`)
			charge.Key = flight.MustKey(fmt.Sprintf("default/charge/order-%d", n.Add(1)%keys))
			if _, err := c.Do(context.Background(), charge, h); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replays/s")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// cpuTime returns the CPU time of this process so far, which other processes on the machine do not change.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	require.NoError(b, err)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
