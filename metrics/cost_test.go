package metrics

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// emitFlightEvents emits the events of one flight.
func emitFlightEvents(ex *executor.Events, le *lease.Events, st *clusterstore.Events, key flight.Key) {
	ex.Claimed(key, time.Millisecond)
	le.Committed(2, time.Millisecond, nil)
	ex.Opened(key, 1)
	st.Appended(2, time.Millisecond)
	st.Applied(2, 4, time.Millisecond)
	ex.Closed(key, 1, flight.OutcomeSucceeded, time.Second)
	ex.Called(key, executor.ResultExecuted, 3*time.Millisecond)
}

// TestEventsAllocateNothing: the events of a flight are on the hot path and must not allocate, also if there are too
// many names.
func TestEventsAllocateNothing(t *testing.T) {
	m := New(Config{Actions: 1})
	ex, le, st := m.Executor(executor.Events{}), m.Leases(lease.Events{}), m.Store(clusterstore.Events{})
	for _, key := range []flight.Key{flight.MustKey("n/first/1"), flight.MustKey("n/beyond/1")} {
		emitFlightEvents(&ex, &le, &st, key) // the first call creates the series
		require.Zero(t, testing.AllocsPerRun(1000, func() { emitFlightEvents(&ex, &le, &st, key) }))
	}
}

// BenchmarkFlight measures the events of one flight. It counts a batch per flight, which is an upper bound.
func BenchmarkFlight(b *testing.B) {
	m := New(Config{})
	ex, le, st := m.Executor(executor.Events{}), m.Leases(lease.Events{}), m.Store(clusterstore.Events{})
	key := flight.MustKey("n/charge/order-1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			emitFlightEvents(&ex, &le, &st, key)
		}
	})
}

// BenchmarkReplay measures the events of a call that finds its receipt.
func BenchmarkReplay(b *testing.B) {
	m := New(Config{})
	ex := m.Executor(executor.Events{})
	key := flight.MustKey("n/charge/order-1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ex.Called(key, executor.ResultReplayed, 5*time.Microsecond)
		}
	})
}

// TestRaftLibrarySinkAllocatesNothing measures the sink only; the library allocates even without a sink.
func TestRaftLibrarySinkAllocatesNothing(t *testing.T) {
	s := newLibrarySink()
	sample, gauge := []string{"raft", "leader", "dispatchLog"}, []string{"raft", "commitNumLogs"}
	tell := func() { s.AddSample(sample, 1); s.SetGauge(gauge, 2) }
	tell()
	require.Zero(t, testing.AllocsPerRun(1000, tell))
}

func BenchmarkRaftLibrarySink(b *testing.B) {
	s, key := newLibrarySink(), []string{"raft", "leader", "dispatchLog"}
	b.ReportAllocs()
	for b.Loop() {
		s.AddSample(key, 1)
	}
}
