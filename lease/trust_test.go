package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/internal/clock"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is the instant t0 + offset, on all clocks.
func at(offset time.Duration) clock.Instant {
	return clock.Instant{Time: t0, SinceBoot: time.Duration(t0.UnixNano())}.Add(offset)
}

func TestWindowCountsFromTheSending(t *testing.T) {
	w := NewWindow(at(0), 10*time.Second)
	for _, c := range []struct{ now, left time.Duration }{
		{0, 8 * time.Second}, {3 * time.Second, 5 * time.Second}, {8 * time.Second, 0}, {9 * time.Second, -time.Second},
	} {
		require.Equal(t, c.left, w.Left(at(c.now)), "after %v", c.now)
	}
	require.LessOrEqual(t, Window{}.Left(at(0)), time.Duration(0), "the zero window is over")
	require.LessOrEqual(t, NewWindow(at(0), 400*time.Millisecond).Left(at(0)), time.Duration(0), "shorter than its margin")
}

func TestMargin(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		2 * time.Second: 500 * time.Millisecond, 10 * time.Second: 2 * time.Second, 15 * time.Second: 3 * time.Second,
	} {
		require.Equal(t, want, Margin(ttl), "TTL %v", ttl)
	}
}

// Time in which the machine was suspended, and a wall clock that jumped ahead, count; a wall clock that was set back
// does not.
func TestTheLongestClockDecides(t *testing.T) {
	w := NewWindow(at(0), 10*time.Second)
	suspended := at(time.Second)
	suspended.SinceBoot += time.Hour
	require.LessOrEqual(t, w.Left(suspended), time.Duration(0), "after an hour of suspension")
	ahead := at(time.Second)
	ahead.Time = t0.Add(time.Hour)
	require.LessOrEqual(t, w.Left(ahead), time.Duration(0), "an hour ahead by the wall clock")
	back := at(time.Second)
	back.Time = t0.Add(-time.Hour)
	require.Equal(t, 7*time.Second, w.Left(back), "with the wall clock set back")
	noBoot := at(time.Hour)
	noBoot.SinceBoot = at(0).SinceBoot
	require.LessOrEqual(t, w.Left(noBoot), time.Duration(0), "an hour later without a clock since boot")
}

// However long requests and answers take, the window is over before etcd's lease can end.
func TestWindowEndsBeforeTheLease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(2, 600).Draw(t, "ttl")) * time.Second
		there := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "back"))
		w := NewWindow(at(0), ttl)
		leaseEnds := there + ttl // etcd counts from the arrival
		answered := there + back
		if left := w.Left(at(answered)); left > 0 {
			require.LessOrEqual(t, answered+left, leaseEnds-Margin(ttl))
		}
	})
}

// The timeout of a renewal ends with the window of a trusted session; for a lost session in use it is bounded, too.
func TestRenewalsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.IntRange(2, 600).Draw(t, "ttl")) * time.Second
		left := time.Duration(rapid.Int64Range(-int64(time.Second), int64(ttl)).Draw(t, "left"))
		timeout := renewTimeout(ttl, left)
		require.LessOrEqual(t, timeout, ttl/3)
		require.GreaterOrEqual(t, timeout, time.Millisecond)
		if left > 0 {
			require.LessOrEqual(t, timeout, max(left, time.Millisecond))
		}
		retry := nextRenewal(ttl, true)
		require.LessOrEqual(t, retry, nextRenewal(ttl, false))
		require.GreaterOrEqual(t, retry, 100*time.Millisecond)
	})
}
