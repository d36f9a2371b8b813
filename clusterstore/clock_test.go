package clusterstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// fakeClock is a clock that the test sets.
type fakeClock struct {
	wall time.Time
	mono time.Duration
}

func (c *fakeClock) clock() Clock {
	return Clock{Wall: func() time.Time { return c.wall }, Mono: func() time.Duration { return c.mono }}
}

func (c *fakeClock) advance(d time.Duration) { c.wall, c.mono = c.wall.Add(d), c.mono+d }

func TestSlewNeverJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was := rapid.Int64Range(0, 1<<61).Draw(t, "was")
		elapsed := rapid.Int64Range(-1<<40, 1<<50).Draw(t, "elapsed")
		wall := rapid.Int64Range(0, 1<<62).Draw(t, "wall")
		now := slew(was, elapsed, wall)
		require.GreaterOrEqual(t, now, was, "ledger time never goes back")
		real := max(elapsed, 0)
		require.LessOrEqual(t, now-was, real+real/slewShare, "at most 1.05 times as fast as real time")
		require.GreaterOrEqual(t, now-was, real-real/slewShare)
		if free := was + real; wall >= free-real/slewShare && wall <= free+real/slewShare && elapsed > 0 {
			require.Equal(t, wall, now, "a small difference is corrected at once")
		}
	})
}

// startAlone starts the clock as a lone voter does, and returns its time.
func (c *ledgerClock) startAlone(ledger flight.Time) flight.Time {
	c.lead(ledger)
	if now, to, due := c.planStep(); due {
		c.setForward(now, to)
	}
	return c.read()
}

func TestHazard25_WallClockJumpsAhead(t *testing.T) {
	l := &fakeClock{wall: time.UnixMilli(1_000_000)}
	c := &ledgerClock{source: l.clock()}
	start := c.startAlone(0)
	require.Equal(t, flight.Time(1_000_000), start)
	l.wall = l.wall.Add(10 * 365 * 24 * time.Hour)
	l.advance(time.Minute)
	require.Equal(t, start.Add(63*time.Second), c.read(), "a minute counts at most 63 seconds")
	require.Equal(t, c.read(), c.startAlone(0), "a later leadership of the same process steps no clock")
}

func TestHazard26_WallClockJumpsBack(t *testing.T) {
	l := &fakeClock{wall: time.UnixMilli(1_000_000_000)}
	c := &ledgerClock{source: l.clock()}
	start := c.startAlone(0)
	l.wall = time.UnixMilli(5)
	require.Equal(t, start, c.read())
	l.advance(time.Minute)
	require.Equal(t, start.Add(57*time.Second), c.read())
	require.Equal(t, flight.Time(2_000_000_000), c.startAlone(2_000_000_000), "the clock is never behind the ledger's time")
}

func TestStartWithAWrongClockExpiresNothingAtOnce(t *testing.T) {
	l := &fakeClock{wall: time.UnixMilli(1_000_000).Add(365 * 24 * time.Hour)}
	c := &ledgerClock{source: l.clock()}
	c.startAlone(1_000_000)
	require.Equal(t, flight.Time(1_000_000), c.expiryHorizon())
	l.advance(stepGrace / 2)
	require.Equal(t, flight.Time(1_000_000).Add(stepGrace/2), c.expiryHorizon())
	l.advance(stepGrace)
	require.Equal(t, c.read(), c.expiryHorizon())
	short := &ledgerClock{source: l.clock()}
	now := short.startAlone(flight.Time(l.wall.Add(-time.Minute).UnixMilli()))
	require.Equal(t, now, short.expiryHorizon(), "a short stop delays no expiry")
}

// A wall clock that jumps while the ledger runs ends no retention, in either direction.
func TestHazard25_JumpExpiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
		cfg := memConfig(vfs.NewMem())
		cfg.Clock = l.clock()
		s := openStore(t, cfg)
		openAndReport(t, s, 1)
		before := s.Now()
		l.wall = l.wall.Add(20 * 365 * 24 * time.Hour)
		n, err := s.Expire(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
		l.wall = time.UnixMilli(0)
		require.GreaterOrEqual(t, s.Now(), before)
		openAndReport(t, s, 2)
		require.GreaterOrEqual(t, s.Header().Now, before)
	})
}

// clockAhead returns the configuration of a closed ledger with three finished flights, and a clock that is a year
// ahead.
func clockAhead(t *testing.T) (Config, *fakeClock) {
	t.Helper()
	l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
	cfg := memConfig(vfs.NewMem())
	cfg.Clock = l.clock()
	newClosedLedger(t, cfg, 3)
	l.wall = l.wall.Add(365 * 24 * time.Hour)
	return cfg, l
}

// After a start with a clock that is far ahead, the ledger's time follows, but for stepGrace nothing expires because
// of the step.
func TestHazard25_StartWithAClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, l := clockAhead(t)
		var jump [2]flight.Time
		cfg.Events.ClockStepped = func(from, to flight.Time) { jump = [2]flight.Time{from, to} }
		s := openStore(t, cfg)
		require.Equal(t, flight.Time(l.wall.UnixMilli()), s.Now())
		require.Equal(t, s.Now(), jump[1])
		propose(t, s, &flight.Tick{})
		for _, want := range []int{0, 3} {
			n, err := s.Expire(context.Background(), 10)
			require.NoError(t, err)
			require.Equal(t, want, n)
			l.advance(stepGrace)
		}
	})
}

// After several starts with such a clock, the later ones find the ledger's time already ahead, and read the original
// time from CLOCK_STEP.
func TestHazard25_StartsWithAClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, l := clockAhead(t)
		expire := func(s *Store, want int) {
			t.Helper()
			n, err := s.Expire(context.Background(), NoLimit)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		for range 3 {
			s, err := Open(context.Background(), cfg)
			require.NoError(t, err)
			propose(t, s, &flight.Tick{})
			expire(s, 0)
			l.advance(stepGrace / 2)
			expire(s, 0)
			require.NoError(t, s.Close(context.Background()))
		}
		s := openStore(t, cfg)
		expire(s, 0)
		l.advance(stepGrace)
		expire(s, 3)
		_, err := cfg.FS.Stat("ledger/" + clockStepFile)
		require.True(t, oserror.IsNotExist(err), "the step has settled: %v", err)
	})
}

// An unreadable CLOCK_STEP counts as a step from the earliest time.
func TestJumpThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		l := &fakeClock{wall: time.UnixMilli(1_700_000_000_000)}
		cfg := memConfig(fs)
		cfg.Clock = l.clock()
		newClosedLedger(t, cfg, 3)
		l.advance(365 * 24 * time.Hour)
		s, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		propose(t, s, &flight.Tick{})
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, writeFile(fs, "ledger", clockStepFile, []byte("1700...")))
		s = openStore(t, cfg)
		for _, want := range []int{0, 3} {
			n, err := s.Expire(context.Background(), NoLimit)
			require.NoError(t, err)
			require.Equal(t, want, n)
			l.advance(stepGrace)
		}
	})
}

// After a clock that was far ahead has been corrected, the ledger's time stays ahead, but retentions that only this
// made due do not end.
func TestHazard25_ClockAheadIsSetRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, l := clockAhead(t)
		ahead, err := Open(context.Background(), cfg)
		require.NoError(t, err)
		l.advance(time.Minute)
		propose(t, ahead, &flight.Tick{})
		require.NoError(t, ahead.Close(context.Background()))

		l.wall = l.wall.Add(-365 * 24 * time.Hour)
		s := openStore(t, cfg)
		propose(t, s, &flight.Tick{})
		n, err := s.Expire(context.Background(), NoLimit)
		require.NoError(t, err)
		require.Zero(t, n, "the retention has not ended by the corrected clock")
		l.advance(31 * 24 * time.Hour)
		n, err = s.Expire(context.Background(), NoLimit)
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})
}
