package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads CLOCK_BOOTTIME, which goes on while the machine is suspended; 0 when it cannot be read.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
