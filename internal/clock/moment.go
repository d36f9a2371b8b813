package clock

import "time"

// Moment is one on every clock of this machine.
type Moment struct {
	time.Time               // monotonic and wall
	Boot      time.Duration // since boot, counting the time for which the machine was asleep; 0 where there is no such clock
}

// Now reads the clocks.
func Now() Moment { return Moment{time.Now(), SinceBoot()} }

// Add is the moment d later.
func (m Moment) Add(d time.Duration) Moment { return Moment{m.Time.Add(d), m.Boot + d} }

// Left is how long it is until m; zero or less when it has passed. The monotonic clock stands still while a machine sleeps, the
// clock since boot goes on, and the wall clock may jump; the clock that leaves the least is believed.
func (m Moment) Left() time.Duration {
	now := Now()
	return min(m.Sub(now.Time), m.Round(0).Sub(now.Round(0)), m.Boot-now.Boot)
}
