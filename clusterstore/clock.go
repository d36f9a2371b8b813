package clusterstore

import (
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Clock supplies wall time and monotonic time.
type Clock struct {
	Wall func() time.Time     // may jump in both directions
	Mono func() time.Duration // since any fixed moment; never jumps; counts while the machine sleeps, if possible
}

// systemClock returns a Clock based on the time since boot, which counts while the machine sleeps. If boot does not
// advance, Mono uses the process's monotonic clock.
func systemClock(boot func() time.Duration) Clock {
	start, booted := time.Now(), boot()
	return Clock{Wall: time.Now, Mono: func() time.Duration { return max(time.Since(start), boot()-booted) }}
}

// slewShare limits how fast the ledger's time approaches the wall clock: by one twentieth of the elapsed time. Ledger
// time never advances faster than 1.05 times real time.
const slewShare = 20

// slew advances the ledger's time by the elapsed monotonic time, corrected towards the wall clock by at most
// elapsed/slewShare. The result is never less than was. was and wall are nanoseconds since 1970, elapsed is in
// nanoseconds.
func slew(was, elapsed, wall int64) int64 {
	if elapsed <= 0 {
		return was
	}
	free := was + elapsed
	maxCorrection := elapsed / slewShare
	return free + max(-maxCorrection, min(wall-free, maxCorrection))
}

// ledgerClock is the leader's clock. It starts at the ledger's time when the leadership starts and advances with the
// monotonic clock, corrected towards the wall clock; in a cluster towards the median of the voters' wall clocks, and not at
// all while those of a majority are unknown (clock_peers.go).
type ledgerClock struct {
	source Clock

	mu        sync.Mutex // guards the fields below
	peers     peerClocks
	stepped   bool          // setForward was called; in a cluster: in this term, and a majority's clocks were known since
	now       int64         // the ledger's time, in nanoseconds since 1970
	at        time.Duration // monotonic time of the last update of now
	step      int64         // how far the wall clock set now forward at the start, in nanoseconds
	steppedAt time.Duration // monotonic time of that step
}

// stepGrace is how long after a forward step of a lone voter nothing expires that was not due before the step. A machine may start
// with a wrong clock; an operator has this time to correct it before receipts expire. Steps shorter than stepGrace
// are not delayed.
const stepGrace = time.Hour

// lead sets the clock forward to the ledger's time when this node becomes leader. In a cluster a step may follow.
func (c *ledgerClock) lead(ledger flight.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	c.now = max(c.now, nanoseconds(ledger))
	c.stepped = c.stepped && !c.peers.several()
}

// minClusterStep is the smallest step that a cluster makes. Smaller differences are corrected by slew, within 20 s; they
// occur with every change of the leader.
const minClusterStep = 1_000

// planStep returns the clock's time, and the time to which it may step: the wall clock, or the median of a majority's, if
// that is later. due is false after setForward: then the wall clock changes the ledger's time only through slew.
func (c *ledgerClock) planStep() (now, to flight.Time, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.tickLocked()
	now = milliseconds(c.now)
	to = max(now, milliseconds(r.lowerMedian()))
	if c.peers.several() && to < now+minClusterStep {
		to = now
	}
	return now, to, !c.stepped && r.majorityOf(c.peers.voters)
}

// setForward sets the clock to the time of a step. before is the time before the step, and before unsettled steps of earlier
// processes: until stepGrace is over, nothing expires that was not due then.
func (c *ledgerClock) setForward(before, to flight.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	c.now, c.stepped = max(c.now, nanoseconds(to)), true
	c.step, c.steppedAt = nanoseconds(to-before), c.at
}

// read returns the ledger's time now.
func (c *ledgerClock) read() flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	return milliseconds(c.now)
}

// stamp returns the stamp for a new entry: the ledger's time, and the wall clock if it is later; in a cluster the highest
// one that is known. Only the provider's window goes by the wall clock, because a machine may have slept while its monotonic
// clock stood still.
func (c *ledgerClock) stamp() stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := milliseconds(c.tickLocked().highest())
	at := stamp{now: milliseconds(c.now)}
	if wall > at.now {
		at.wall = wall
	}
	return at
}

// tickLocked advances now and returns the voters' wall clocks; of a lone voter its own.
func (c *ledgerClock) tickLocked() readings {
	mono := c.source.Mono()
	r := c.peers.read(mono, c.source.Wall().UnixNano())
	elapsed := int64(mono - c.at)
	if r.majorityOf(c.peers.voters) {
		c.now = slew(c.now, elapsed, r.lowerMedian())
	} else {
		c.now, c.stepped = c.now+max(0, elapsed), false
	}
	c.at = max(c.at, mono)
	return r
}

// expiryHorizon returns the time up to which retentions are over. It is never later than the wall clock: ledger time
// does not go back, so after a clock that was far ahead is corrected, the ledger's time stays ahead. During stepGrace
// it excludes the step. In a cluster the wall clock is the median of a majority's; while that is unknown, nothing expires.
func (c *ledgerClock) expiryHorizon() flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.tickLocked()
	if !r.majorityOf(c.peers.voters) {
		return 0
	}
	now := max(0, min(c.now, r.lowerMedian()))
	if c.stepUnsettledLocked() {
		now = min(now, c.now-c.step)
	}
	return milliseconds(now)
}

func (c *ledgerClock) stepUnsettledLocked() bool {
	return c.step > int64(stepGrace) && c.at-c.steppedAt < stepGrace
}

// stepSettled reports whether stepGrace is over.
func (c *ledgerClock) stepSettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	return c.stepped && !c.stepUnsettledLocked()
}

func nanoseconds(t flight.Time) int64   { return int64(t) * int64(time.Millisecond) }
func milliseconds(ns int64) flight.Time { return flight.Time(ns / int64(time.Millisecond)) }
