package flightdtest

import (
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// faults are the faults of a ledger. The ledger's mutex guards them.
type faults struct {
	loseAnswers   int
	outage        *outage // nil: none
	arrived       *sync.Cond
	beforeCommand func(flight.Command)
	clockAhead    time.Duration
	wallAhead     time.Duration // the leader's wall clock minus the ledger's time
}

// outage is a time in which the ledger is unreachable.
type outage struct {
	hangs   bool          // commands are applied at its end, instead of being rejected
	healed  chan struct{} // closed by Heal
	pending int           // commands to apply at its end
}

// LoseAnswers makes the next n commands be applied without an answer.
func (l *Ledger) LoseAnswers(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseAnswers = n
}

// Cut makes the ledger unreachable for commands until Heal: opens fail, reports wait and are committed at Heal. Reads
// succeed.
func (l *Ledger) Cut() { l.beginOutage(false) }

// Stall is like a lost quorum: commands hang with an unknown outcome until Heal, and are applied then.
func (l *Ledger) Stall() { l.beginOutage(true) }

func (l *Ledger) beginOutage(hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outage == nil {
		l.outage = &outage{healed: make(chan struct{})}
	}
	l.outage.hangs = hangs
}

// Heal ends Cut and Stall, and returns when all waiting commands have been applied.
func (l *Ledger) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.outage
	if o == nil {
		return
	}
	l.outage = nil
	close(o.healed)
	for o.pending > 0 {
		l.arrived.Wait()
	}
}

// deliverLater applies a command at the end of the outage, on a goroutine that Heal waits for.
func (l *Ledger) deliverLater(o *outage, c flight.Command) {
	l.mu.Lock()
	o.pending++
	l.mu.Unlock()
	go func() {
		<-o.healed
		l.mu.Lock()
		defer l.mu.Unlock()
		l.apply(c)
		o.pending--
		l.arrived.Broadcast()
	}()
}

// Before calls f before each command that reaches the ledger, on the goroutine that proposes it; nil: no call. Faults
// that f injects apply to this command: after a Cut or Stall in f it waits for Heal, and f is not called for it again.
func (l *Ledger) Before(f func(flight.Command)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beforeCommand = f
}

// Advance moves the ledger's clock ahead by d, and no other clock: provider windows and retentions end, scheduled
// flights become due.
func (l *Ledger) Advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clockAhead += d
}

// AdvanceWall moves the wall clock of the ledger's leader ahead of the ledger's time by d.
func (l *Ledger) AdvanceWall(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wallAhead += d
}

// admit admits a command to the ledger, or returns the outage that prevents it, and whether the command hangs.
func (l *Ledger) admit(c flight.Command) (o *outage, hangs bool) {
	l.mu.Lock()
	before := l.beforeCommand
	l.mu.Unlock()
	if o, hangs = l.currentOutage(); o != nil || before == nil {
		return o, hangs
	}
	before(c)
	return l.currentOutage() // before may have begun one
}

// currentOutage returns the outage, or nil if the ledger is reachable.
func (l *Ledger) currentOutage() (o *outage, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage, l.outage != nil && l.outage.hangs
}
