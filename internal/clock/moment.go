package clock

import "time"

// Instant is a point in time on all clocks of this machine.
type Moment struct {
	time.Time               // monotonic and wall
	Boot      time.Duration // since boot, including suspended time; 0 if there is no such clock
}

// Now reads the clocks.
func Now() Moment { return Moment{time.Now(), SinceBoot()} }

// Add returns the instant d later.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Time.Add(d), m.Boot + d} }

// Remaining returns the time until the instant; zero or less if it has passed. The monotonic clock stops while the
// machine is suspended, the clock since boot continues, and the wall clock may jump; the clock with the least time left
// counts.
func (m Moment) Left() time.Duration {
	return -Now().Since(m)
}

// Since returns the time that has passed since an earlier instant: the most that any clock measured. A clock that stood
// still or was set back does not count, and a wall clock that jumped ahead makes the result too long, never too short.
func (m Moment) Since(earlier Moment) time.Duration {
	return max(m.Sub(earlier.Time), m.Round(0).Sub(earlier.Round(0)), m.Boot-earlier.Boot)
}
