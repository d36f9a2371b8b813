package client

import (
	"sync"
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// moment is one on every clock of this machine.
type moment struct {
	time.Time               // monotonic and wall
	boot      time.Duration // since boot, counting the time for which the machine was asleep; 0 where there is no such clock
}

func now() moment { return moment{time.Now(), clock.SinceBoot()} }

// trust is how long a session may be believed in: from the sending of a request for as long as its answer said. It
// runs by the monotonic clock, which stands still while a machine sleeps, by the one that goes on then, and by the wall
// clock, which may jump; whichever says that it is over is believed.
type trust struct {
	mu    sync.Mutex
	until moment
}

func (t *trust) extend(sent moment, ms int64) {
	more := time.Duration(ms) * time.Millisecond
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := sent.Add(more); until.After(t.until.Time) {
		t.until = moment{until, sent.boot + more}
	}
}

func (t *trust) left() time.Duration {
	t.mu.Lock()
	until := t.until
	t.mu.Unlock()
	now := now()
	return min(until.Sub(now.Time), until.Round(0).Sub(now.Round(0)), until.boot-now.boot)
}
