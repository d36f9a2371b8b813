package clusterstore

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// diskGuard refuses new work before the disk is full. What finishes work that was begun is let through: the reserve
// is for reports.
type diskGuard struct {
	cfg     *Config
	checked atomic.Int64 // on the monotonic clock, in nanoseconds, plus one; 0: never
	low     atomic.Bool
}

// diskInterval is how old the answer of the file system may be.
const diskInterval = time.Second

// admit refuses Submit, Open and Import while less than Guard.MinFree is free.
func (d *diskGuard) admit(c flight.Command) error {
	switch c.(type) {
	case *flight.Submit, *flight.Open, *flight.Import:
	default:
		return nil
	}
	return d.room()
}

// room says that too little of the disk is free for new work.
func (d *diskGuard) room() error {
	now, last := int64(d.cfg.Clock.Mono())+1, d.checked.Load()
	if (last == 0 || now-last > int64(diskInterval)) && d.checked.CompareAndSwap(last, now) {
		usage, err := d.cfg.FS.GetDiskUsage(d.cfg.Dir)
		low := err == nil && usage.AvailBytes < d.cfg.Guard.MinFree
		if was := d.low.Swap(low); was != low && d.cfg.Events.Room != nil {
			d.cfg.Events.Room(!low, usage.AvailBytes)
		}
	}
	if d.low.Load() {
		return fmt.Errorf("%w: less than %d MiB of disk are free in %s", ErrUnavailable, d.cfg.Guard.MinFree>>20, d.cfg.Dir)
	}
	return nil
}
