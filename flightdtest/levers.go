package flightdtest

import (
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// levers are what a test does to a ledger. They are guarded by the ledger's mutex.
type levers struct {
	lose    int
	down    *outage // nil: within reach
	arrived *sync.Cond
	before  func(flight.Command)
	ahead   time.Duration
	wall    time.Duration // by how much the leader's wall clock is ahead of the ledger's time
}

// outage is a time in which the ledger is out of reach.
type outage struct {
	hangs bool          // commands wait and arrive later, instead of being refused
	over  chan struct{} // closed by Heal
	left  int           // commands that arrive when it is over
}

// LoseAnswers lets the next n commands be applied and loses their answers.
func (l *Ledger) LoseAnswers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = n
}

// Cut puts the ledger out of reach for commands until Heal: opens are refused, reports wait and are committed then.
// Reads go on.
func (l *Ledger) Cut() { l.leave(false) }

// Stall is Cut, but like a lost quorum: what is proposed is not refused. It hangs, nobody knows what became of it, and
// it arrives with Heal.
func (l *Ledger) Stall() { l.leave(true) }

func (l *Ledger) leave(hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		l.down = &outage{over: make(chan struct{})}
	}
	l.down.hangs = hangs
}

// Heal ends Cut and Stall, and returns when everything that was left on its way has arrived.
func (l *Ledger) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.down
	if o == nil {
		return
	}
	l.down = nil
	close(o.over)
	for o.left > 0 {
		l.arrived.Wait()
	}
}

// deliverLater applies a command when the outage is over. Heal waits for it.
func (l *Ledger) deliverLater(o *outage, c flight.Command) {
	l.mu.Lock()
	o.left++
	l.mu.Unlock()
	go func() {
		<-o.over
		l.mu.Lock()
		defer l.mu.Unlock()
		l.apply(c)
		o.left--
		l.arrived.Broadcast()
	}()
}

// Before calls f before every command that reaches the ledger, on the goroutine that proposes it; nil: nobody. What f
// does to the world is done before the command is applied: with Cut or Stall it is not, until Heal, and f is not told
// of it again.
func (l *Ledger) Before(f func(flight.Command)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before = f
}

// Advance lets that much time pass in the ledger alone: provider windows and retentions end, scheduled flights become
// due. Its clock stays ahead by that.
func (l *Ledger) Advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead += d
}

// AdvanceWall lets the wall clock of the ledger's leader jump ahead of the ledger's time.
func (l *Ledger) AdvanceWall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wall += d
}

// pass lets a command through to the ledger, or gives the outage that keeps it, and whether it hangs there.
func (l *Ledger) pass(c flight.Command) (o *outage, hangs bool) {
	l.mu.Lock()
	before := l.before
	l.mu.Unlock()
	if o, hangs = l.outage(); o != nil || before == nil {
		return o, hangs
	}
	before(c)
	return l.outage() // which may be its doing
}

// outage is that of now; nil: the ledger is within reach.
func (l *Ledger) outage() (o *outage, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down, l.down != nil && l.down.hangs
}
