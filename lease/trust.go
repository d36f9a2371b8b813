package lease

import (
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// Instant is one moment on every clock of this machine. The monotonic clock alone is not enough: it stands still
// while a virtual machine is suspended, and etcd's does not.
type Instant struct {
	mono time.Time     // compared by its monotonic reading
	wall time.Time     // has none
	boot time.Duration // since boot, counting suspended time; 0 where there is no such clock
}

// Now reads the clocks.
func Now() Instant {
	now := time.Now()
	return Instant{mono: now, wall: now.Round(0), boot: clock.SinceBoot()}
}

// InstantOf is an Instant for tests and for virtual time: t, and how long the machine has been suspended so far.
func InstantOf(t time.Time, suspended time.Duration) Instant {
	return Instant{mono: t, wall: t.Round(0), boot: time.Duration(t.UnixNano()) + suspended}
}

// Since is how much time has passed from earlier to i: the longest that any clock says. Clocks that were set back or
// stood still are outvoted, one that jumped ahead makes the holder stop sooner, which is the safe side.
func (i Instant) Since(earlier Instant) time.Duration {
	return max(i.mono.Sub(earlier.mono), i.wall.Sub(earlier.wall), i.boot-earlier.boot)
}

// Margin is how much earlier than etcd a holder stops trusting its session: max(500 ms, TTL/5).
func Margin(ttl time.Duration) time.Duration { return max(500*time.Millisecond, ttl/5) }

// RenewEvery is the period of renewals.
func RenewEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// Window is the time in which a holder may trust its session. It opens when a renewal is *sent*: etcd cannot have
// started to count before that, so however late the answer comes, the window ends before the lease does.
// The zero Window is shut.
type Window struct {
	sent   Instant
	length time.Duration
}

// NewWindow is the window of a renewal that was sent at the given moment and answered with this TTL.
func NewWindow(sent Instant, ttl time.Duration) Window {
	return Window{sent: sent, length: ttl - Margin(ttl)}
}

// Left is what is left of the window; zero or less when it is shut.
func (w Window) Left(now Instant) time.Duration {
	if w.length <= 0 {
		return 0
	}
	return w.length - now.Since(w.sent)
}

// endsAfter reports whether w stays open longer than v, so that answers that come in the wrong order shorten nothing.
func (w Window) endsAfter(v Window, now Instant) bool { return w.Left(now) > v.Left(now) }
