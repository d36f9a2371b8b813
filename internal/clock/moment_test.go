package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeftCountsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := Moment{time.Now(), 0}.Add(time.Hour)
		end.Boot = SinceBoot() + 2*time.Hour // virtual time does not move this clock
		time.Sleep(20 * time.Minute)
		require.Equal(t, 40*time.Minute, end.Left())
		time.Sleep(time.Hour)
		require.Equal(t, -20*time.Minute, end.Left())
	})
}

// A moment passes while the machine sleeps: on Linux its clock since boot goes on, although the monotonic clock stands still
// and the wall clock was set back.
func TestLeftCountsSleep(t *testing.T) {
	end := Now().Add(time.Minute)
	require.Positive(t, end.Left())
	end.Boot -= time.Hour
	require.Negative(t, end.Left())
}

func TestLeftFollowsAWallClockThatJumpedAhead(t *testing.T) {
	end := Now().Add(time.Minute)
	end.Time = end.Time.Round(0).Add(-time.Hour) // as if the wall clock had gained an hour since
	require.Negative(t, end.Left())
}
