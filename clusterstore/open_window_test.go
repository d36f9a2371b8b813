package clusterstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// resendOf returns an Open of a flight whose provider remembers the idempotency key for a minute.
func resendOf(s *Store, n int) *flight.Open {
	o := openOf(s, testKey(1), 1)
	o.Submission.Policy = flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: time.Minute}
	o.Nonce, o.Session = nonce(n), sessionOf(s, flight.SessionID("session-"+string(rune('a'+n))))
	return o
}

// newStoreWithLostOpen returns a store in which the attempt of such a flight was lost.
func newStoreWithLostOpen(t *testing.T, cfg Config) *Store {
	s := openStore(t, cfg)
	require.Equal(t, flight.DecisionProceed, propose(t, s, resendOf(s, 1)).Decision)
	require.Equal(t, flight.DecisionAccepted, propose(t, s, endedOf(s, "session-b")).Decision)
	f, err := s.Flight(testKey(1).FlightID())
	require.NoError(t, err)
	require.Equal(t, flight.StateReady, f.State)
	return s
}

// After a sleep of an hour, which the clock since boot has counted, the provider has forgotten the key.
func TestSleepClosesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := time.Hour
		cfg := memConfig(vfs.NewMem())
		cfg.Clock = systemClock(func() time.Duration { return boot })
		s := newStoreWithLostOpen(t, cfg)
		before := s.Now()
		boot += time.Hour
		require.GreaterOrEqual(t, s.Now().AsTime().Sub(before.AsTime()), 56*time.Minute)
		require.Equal(t, flight.DecisionInDoubt, propose(t, s, resendOf(s, 2)).Decision)
	})
}

// A wall clock gains an hour and the other clocks do not: either it was wrong before, or the machine slept without a
// clock that counts it. The ledger's time follows slowly, but the window has ended. A start from the log alone
// returns the same result.
func TestWallClockClosesTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
		cfg := memConfig(fs)
		cfg.Clock = l.clock()
		s := newStoreWithLostOpen(t, cfg)
		require.Zero(t, s.Header().Wall)
		l.wall = l.wall.Add(time.Hour)
		require.Equal(t, flight.DecisionInDoubt, propose(t, s, resendOf(s, 2)).Decision)
		h := s.Header()
		require.Equal(t, h.Now.Add(time.Hour), h.Wall)

		cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, cfg.FS.RemoveAll("ledger/"+stateName(1)))
		reopened := openStore(t, cfg)
		f, err := reopened.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.StateInDoubt, f.State)
		l.advance(time.Second)
		propose(t, reopened, &flight.Tick{})
		require.Zero(t, reopened.Header().Wall, "a start steps the ledger's time to the wall clock")
		require.NoError(t, reopened.Close(context.Background()))
	})
}

// Without a readable clock since boot, the monotonic clock counts.
func TestSystemClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := 5 * time.Hour
		asleep, blind := systemClock(func() time.Duration { return boot }), systemClock(func() time.Duration { return 0 })
		time.Sleep(time.Minute)
		require.Equal(t, time.Minute, asleep.Mono(), "a clock since boot that does not advance is ignored")
		boot += time.Hour
		require.Equal(t, time.Hour, asleep.Mono())
		require.Equal(t, time.Minute, blind.Mono())
	})
}
