package pebblelog

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// A table that could not be written is begun again after tablePause: Pebble itself makes none, and would do nothing else. Nor does it
// where one of the tables that it makes another one of cannot be read: so whoever reads it has its error after that pause. Why is said
// once in tellPause.
const (
	tablePause = 250 * time.Millisecond
	tellPause  = time.Minute
)

// pace slows down a database that cannot write its tables, and says so. What waits to be written stays in memory and in the
// write-ahead log meanwhile.
type pace struct {
	over chan struct{} // closed where nobody waits any more

	mu      sync.Mutex
	refused error     // what the system said last
	failed  time.Time // when a table could not be written last
	told    time.Time
}

// failure takes note of a table that could not be written.
func (p *pace) failure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = time.Now()
	if why := syscall.Errno(0); errors.As(err, &why) {
		p.refused = err
	}
}

// tell reports whether it is time to say so, again.
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

// wait holds a new table back.
func (p *pace) wait() {
	p.mu.Lock()
	failed := p.failed
	p.mu.Unlock()
	if pause := tablePause - time.Since(failed); !failed.IsZero() && pause > 0 {
		p.rest(pause)
	}
}

// rest lets time pass, unless nobody waits any more.
func (p *pace) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.over:
	}
}

// lately is what the system said where it refused a table in the last moments; nil: it did not.
func (p *pace) lately() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil || time.Since(p.failed) > tellPause {
		return nil
	}
	return p.refused
}
