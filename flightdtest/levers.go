package flightdtest

import (
	"time"

	"github.com/flightd/flightd/flight"
)

// levers are what a test does to a ledger. They are guarded by the ledger's mutex.
type levers struct {
	lose    int
	down    chan struct{} // closed by Heal; nil: within reach
	stalled bool          // while down: commands wait and arrive later, instead of being refused
	before  func(flight.Command)
	ahead   time.Duration
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

func (l *Ledger) leave(stalled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = stalled
	if l.down == nil {
		l.down = make(chan struct{})
	}
}

// Heal ends Cut and Stall, and returns when everything that was left on its way has arrived.
func (l *Ledger) Heal() {
	l.mu.Lock()
	if l.down != nil {
		close(l.down)
		l.down = nil
	}
	l.mu.Unlock()
	l.spooled.Wait()
}

// Before calls f before every command that reaches the ledger, on the goroutine that proposes it; nil: nobody. What f
// does to the world is done before the command is applied.
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

// pass lets a command through to the ledger, or says why not: the error, or the channel that is closed when it arrives.
func (l *Ledger) pass(c flight.Command) (stalled <-chan struct{}, err error) {
	l.mu.Lock()
	down, hangs, before := l.down, l.stalled, l.before
	l.mu.Unlock()
	switch {
	case down != nil && hangs:
		return down, nil
	case down != nil:
		return nil, errDown
	case before != nil:
		before(c)
	}
	return nil, nil
}
