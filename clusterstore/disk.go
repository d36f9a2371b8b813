package clusterstore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// diskMonitor rejects new work before the disk is full. Commands that finish existing work pass: the free space below
// the limit is reserved for reports.
type diskMonitor struct {
	cfg     *Config
	checked atomic.Int64 // monotonic time in nanoseconds, plus one; 0: never
	low     atomic.Bool
}

// diskInterval is how long one measurement of the free space is used.
const diskInterval = time.Second

// admit rejects Submit, Open and Import with ErrUnavailable while less than Limits.MinFree is free.
func (d *diskMonitor) admit(c flight.Command) error {
	switch c.(type) {
	case *flight.Submit, *flight.Open, *flight.Import:
	default:
		return nil
	}
	return d.check()
}

// check returns ErrUnavailable while less than Limits.MinFree is free. It measures at most once per diskInterval.
func (d *diskMonitor) check() error {
	now, last := int64(d.cfg.Clock.Mono())+1, d.checked.Load()
	if (last == 0 || now-last > int64(diskInterval)) && d.checked.CompareAndSwap(last, now) {
		usage, err := d.cfg.FS.GetDiskUsage(d.cfg.Dir)
		low := err == nil && usage.AvailBytes < d.cfg.Limits.MinFree
		if was := d.low.Swap(low); was != low && d.cfg.Events.DiskSpace != nil {
			d.cfg.Events.DiskSpace(!low, usage.AvailBytes)
		}
	}
	if d.low.Load() {
		return fmt.Errorf("%w: less than %d MiB of disk space are free in %s", ErrUnavailable, d.cfg.Limits.MinFree>>20, d.cfg.Dir)
	}
	return nil
}
