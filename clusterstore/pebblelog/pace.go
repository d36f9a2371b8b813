package pebblelog

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

const (
	// tablePause is the delay before Pebble may create a table again after a failed write, and before a failed read of
	// a table is returned. Pebble retries a failed flush or compaction at once and would spin on a full or failing
	// disk.
	tablePause = 250 * time.Millisecond
	// logInterval is the shortest time between two log lines about tables that cannot be written.
	tellPause = time.Minute
)

// throttle slows down the table writes of a database after a failure. The data of a delayed table stays in memory and
// in the write-ahead log. All methods may be called concurrently.
type pace struct {
	over chan struct{} // closed by DB.Close: it ends all pauses

	mu      sync.Mutex // guards the fields below
	refused error      // last error of the operating system
	failed  time.Time  // last failed write of a table
	told    time.Time  // last log line
}

// recordFailure records a failed write of a table.
func (p *pace) failure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = time.Now()
	if why := syscall.Errno(0); errors.As(err, &why) {
		p.refused = err
	}
}

// shouldLog reports whether logInterval has passed since the last log line, and if so counts this one.
func (p *pace) tell() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.told.IsZero() && now.Sub(p.told) < tellPause {
		return false
	}
	p.told = now
	return true
}

// delayTable blocks until tablePause has passed since the last failure, or the database is closed.
func (p *pace) wait() {
	p.mu.Lock()
	failed := p.failed
	p.mu.Unlock()
	if pause := tablePause - time.Since(failed); !failed.IsZero() && pause > 0 {
		p.rest(pause)
	}
}

// sleep waits for the pause, or until the database is closed.
func (p *pace) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.over:
	}
}

// recentError returns the last error of the operating system if a table write failed within logInterval, else nil.
func (p *pace) lately() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil || time.Since(p.failed) > tellPause {
		return nil
	}
	return p.refused
}
