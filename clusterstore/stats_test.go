package clusterstore

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// Stats are correct for a ledger with two flights, and for a closed one.
func TestStatsAreTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entries atomic.Int64
		cfg := memConfig(vfs.NewMem())
		cfg.Events.Appended = func(n int, d time.Duration) {
			if n <= 0 || d < 0 {
				t.Errorf("%d entries in %v", n, d)
			}
			entries.Add(int64(n))
		}
		s := openStore(t, cfg)
		openAndReport(t, s, 1)
		propose(t, s, openOf(s, testKey(2), 2))
		stats := s.Stats()
		require.True(t, stats.Leading)
		require.Positive(t, stats.Term)
		require.EqualValues(t, 1, stats.First)
		require.Equal(t, stats.Last, stats.Commit)
		require.Equal(t, stats.Last, stats.Applied)
		require.EqualValues(t, stats.Last, entries.Load()+1, "all entries except the first, which the bootstrap writes")
		require.EqualValues(t, 1, stats.Flights[flight.StateSucceeded])
		require.EqualValues(t, 1, stats.Flights[flight.StateRunning])
		require.Positive(t, stats.LogBytes)
		require.Positive(t, stats.StateBytes)
		require.NoError(t, s.Close(t.Context()))
		stats = s.Stats()
		require.False(t, stats.Leading)
		require.EqualValues(t, 1, stats.Flights[flight.StateSucceeded])
		require.Zero(t, stats.LogBytes+stats.StateBytes, "closed databases have no figures")
	})
}
