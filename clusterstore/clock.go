package clusterstore

import (
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Clock is where a store gets its time from.
type Clock struct {
	Wall func() time.Time     // for people; may jump in both directions
	Mono func() time.Duration // since some moment; never jumps, and goes on while the machine is asleep where a clock tells
}

// machineClock takes a clock that counts the time since boot, also while the machine is asleep; one that stands still counts nothing.
func machineClock(boot func() time.Duration) Clock {
	start, booted := time.Now(), boot()
	return Clock{Wall: time.Now, Mono: func() time.Duration { return max(time.Since(start), boot()-booted) }}
}

// slewShare is the share of the elapsed time by which the ledger's time may differ from the monotonic clock while it
// approaches the wall clock: one twentieth. Ledger time never advances faster than 1.05 times real time.
const slewShare = 20

// slew is the ledger's time after elapsed of monotonic time, given what it was and what the wall clock says now: as
// much later as has elapsed, bent gently towards the wall clock. It never goes back, and a wall clock that jumps moves
// it by a twentieth of the elapsed time at most. All three are nanoseconds, since 1970 or of duration.
func slew(was, elapsed, wall int64) int64 {
	if elapsed <= 0 {
		return was
	}
	free := was + elapsed
	bend := elapsed / slewShare
	return free + max(-bend, min(wall-free, bend))
}

// ledgerClock is the leader's: monotonic time on top of the ledger's, from the start of its leadership on.
type ledgerClock struct {
	source Clock

	mu      sync.Mutex
	started bool
	now     int64         // nanoseconds since 1970
	at      time.Duration // on the monotonic clock, when that was
	jump    int64         // by how much the wall clock set it forward at the start
	jumped  time.Duration // on the monotonic clock, when

	recalled flight.Time // before a jump that an earlier process did not outlive by settleTime; 0: there was none such
}

// settleTime is how long a leader that jumped forward at its start lets nothing expire that only the jump made due, so
// that a machine that starts with a wrong clock does not throw receipts away before anybody can see it. A jump that is
// shorter does no more than that time would.
const settleTime = time.Hour

// lead starts the clock at the ledger's time, or sets it forward to it. A jump needs a majority, and a lone voter is
// one: when its process starts, the clock starts at the wall clock where that is later. From then on the wall clock
// only bends it. It answers the time it starts at.
func (c *ledgerClock) lead(ledger flight.Time, alone bool) flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	c.now = max(c.now, nanoseconds(ledger))
	if wall := c.source.Wall().UnixNano(); alone && !c.started {
		c.started = true
		from := c.now
		c.now = max(c.now, wall)
		if c.recalled > 0 {
			from = min(from, nanoseconds(c.recalled))
		}
		c.jump, c.jumped = c.now-from, c.at
	}
	return milliseconds(c.now)
}

// recall tells of a jump that an earlier process did not outlive by settleTime: the time to settle begins anew. It must be called
// before lead.
func (c *ledgerClock) recall(before flight.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recalled = before
}

// read gives the ledger's time now.
func (c *ledgerClock) read() flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	return milliseconds(c.now)
}

// stamp is the ledger's time now, and the wall clock's where that is later. The wall clock is not believed for what must last, but it
// ends what must not: a machine may have slept without a clock that tells.
func (c *ledgerClock) stamp() stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := milliseconds(c.tickLocked())
	at := stamp{now: milliseconds(c.now)}
	if wall > at.now {
		at.wall = wall
	}
	return at
}

// tickLocked answers the wall clock, in nanoseconds since 1970.
func (c *ledgerClock) tickLocked() (wall int64) {
	mono, wall := c.source.Mono(), c.source.Wall().UnixNano()
	c.now = slew(c.now, int64(mono-c.at), wall)
	c.at = max(c.at, mono)
	return wall
}

// expiryHorizon is the moment up to which retentions count as over. It is never later than the wall clock says: the ledger's time
// does not go back, so where a clock that was far ahead was set right, it is the ledger's time that is wrong for ever.
func (c *ledgerClock) expiryHorizon() flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	now := max(0, min(c.now, c.source.Wall().UnixNano()))
	if c.settlingLocked() {
		now = min(now, c.now-c.jump)
	}
	return milliseconds(now)
}

func (c *ledgerClock) settlingLocked() bool {
	return c.jump > int64(settleTime) && c.at-c.jumped < settleTime
}

// settling is the ledger's time before a jump at the start, while nothing expires that only the jump made due; 0: there was none such.
func (c *ledgerClock) settling() flight.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	if !c.settlingLocked() {
		return 0
	}
	return milliseconds(c.now - c.jump)
}

// forget makes nothing of the jump: the ledger is new and nothing in it can expire by it.
func (c *ledgerClock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump = 0
}

func nanoseconds(t flight.Time) int64   { return int64(t) * int64(time.Millisecond) }
func milliseconds(ns int64) flight.Time { return flight.Time(ns / int64(time.Millisecond)) }
