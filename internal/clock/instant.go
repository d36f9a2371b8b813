package clock

import "time"

// Instant is a point in time on all clocks of this machine.
type Instant struct {
	time.Time               // monotonic and wall
	SinceBoot time.Duration // since boot, including suspended time; 0 if there is no such clock
}

// Now reads the clocks.
func Now() Instant { return Instant{time.Now(), SinceBoot()} }

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.Time.Add(d), i.SinceBoot + d} }

// Remaining returns the time until the instant; zero or less if it has passed. The monotonic clock stops while the
// machine is suspended, the clock since boot continues, and the wall clock may jump; the clock with the least time left
// counts.
func (i Instant) Remaining() time.Duration {
	return -Now().Since(i)
}

// Since returns the time that has passed since an earlier instant: the most that any clock measured. A clock that stood
// still or was set back does not count, and a wall clock that jumped ahead makes the result too long, never too short.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.Sub(earlier.Time), i.Round(0).Sub(earlier.Round(0)), i.SinceBoot-earlier.SinceBoot)
}
