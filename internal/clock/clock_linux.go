package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns CLOCK_BOOTTIME, which continues while the machine is suspended, or 0 if it cannot be read.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
