//go:build !linux

package clock

import "time"

// SinceBoot returns 0: this system has no such clock, and only the wall clock shows that the machine was suspended.
func SinceBoot() time.Duration { return 0 }
