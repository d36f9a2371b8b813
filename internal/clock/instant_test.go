package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRemaining_CountsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := Instant{time.Now(), 0}.Add(time.Hour)
		end.SinceBoot = SinceBoot() + 2*time.Hour // virtual time does not advance this clock
		time.Sleep(20 * time.Minute)
		require.Equal(t, 40*time.Minute, end.Remaining())
		time.Sleep(time.Hour)
		require.Equal(t, -20*time.Minute, end.Remaining())
	})
}

// An instant passes while the machine is suspended: on Linux the clock since boot continues, although the monotonic
// clock stops and the wall clock was set back.
func TestRemaining_CountsSuspendedTime(t *testing.T) {
	end := Now().Add(time.Minute)
	require.Positive(t, end.Remaining())
	end.SinceBoot -= time.Hour
	require.Negative(t, end.Remaining())
}

func TestRemaining_WallClockStep(t *testing.T) {
	end := Now().Add(time.Minute)
	end.Time = end.Time.Round(0).Add(-time.Hour) // as if the wall clock had been set an hour ahead since
	require.Negative(t, end.Remaining())
}

func TestSinceTakesTheLongestClock(t *testing.T) {
	start := Now()
	require.GreaterOrEqual(t, Now().Since(start), time.Duration(0))
	require.Less(t, Now().Since(start), time.Minute)
	end := start.Add(time.Second)
	require.Equal(t, time.Second, end.Since(start))
	end.SinceBoot += time.Hour
	require.Equal(t, time.Hour+time.Second, end.Since(start))
}
