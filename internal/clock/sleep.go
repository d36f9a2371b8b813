package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d, and reports whether ctx still lives then.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Jitter is a random time around d, from half of it to half as much again, so that parties that started together do not stay
// together. d must be positive.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
