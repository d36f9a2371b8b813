package lease

import (
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// Margin returns how much earlier than the etcd lease trust ends: max(500 ms, TTL/5).
func Margin(ttl time.Duration) time.Duration { return max(500*time.Millisecond, ttl/5) }

// RenewEvery returns the period of renewals.
func RenewEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// Window is the time in which a holder may trust its session. It starts when a renewal is sent, and etcd counts the TTL
// from a later moment. So the window ends before the etcd lease does, even if the answer is late. The zero Window is
// over.
type Window struct {
	sent   clock.Instant
	length time.Duration
}

// NewWindow returns the window of a renewal that was sent at the given moment and answered with this TTL.
func NewWindow(sent clock.Instant, ttl time.Duration) Window {
	return Window{sent: sent, length: ttl - Margin(ttl)}
}

// Left returns the remaining time of the window; zero or less when it is over.
func (w Window) Left(now clock.Instant) time.Duration {
	if w.length <= 0 {
		return 0
	}
	return w.length - now.Since(w.sent)
}

// endsAfter reports whether w ends later than v, so that answers in the wrong order do not shorten the window.
func (w Window) endsAfter(v Window, now clock.Instant) bool { return w.Left(now) > v.Left(now) }
