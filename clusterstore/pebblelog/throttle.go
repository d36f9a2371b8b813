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
	logInterval = time.Minute
)

// throttle slows down the table writes of a database after a failure. The data of a delayed table stays in memory and
// in the write-ahead log. All methods may be called concurrently.
type throttle struct {
	closed chan struct{} // closed by DB.Close: it ends all pauses

	mu          sync.Mutex // guards the fields below
	lastError   error      // last error of the operating system
	lastFailure time.Time  // last failed write of a table
	lastLogged  time.Time  // last log line
}

// recordFailure records a failed write of a table.
func (t *throttle) recordFailure(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastFailure = time.Now()
	if errors.As(err, new(syscall.Errno)) {
		t.lastError = err
	}
}

// shouldLog reports whether logInterval has passed since the last log line, and if so counts this one.
func (t *throttle) shouldLog() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.lastLogged.IsZero() && now.Sub(t.lastLogged) < logInterval {
		return false
	}
	t.lastLogged = now
	return true
}

// delayTable blocks until tablePause has passed since the last failure, or the database is closed.
func (t *throttle) delayTable() {
	t.mu.Lock()
	failed := t.lastFailure
	t.mu.Unlock()
	if pause := tablePause - time.Since(failed); !failed.IsZero() && pause > 0 {
		t.sleep(pause)
	}
}

// sleep waits for the pause, or until the database is closed.
func (t *throttle) sleep(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.closed:
	}
}

// recentError returns the last error of the operating system if a table write failed within logInterval, else nil.
func (t *throttle) recentError() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lastError == nil || time.Since(t.lastFailure) > logInterval {
		return nil
	}
	return t.lastError
}
