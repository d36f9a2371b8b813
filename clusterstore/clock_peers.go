package clusterstore

import (
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// In a cluster no single wall clock decides. The ledger's time follows the lower median of the voters' wall clocks: one
// clock that is ahead ends no protection early, and one that is behind or stands still delays none. The stamp's wall clock,
// which ends the permission to resend to a provider, is the highest one; a token expires by the upper median
// (docs/decisions/0027-clocks-of-several-nodes.md).

// readings are the wall clocks of the voters that answered, at one moment, in nanoseconds since 1970, sorted. They are
// never empty: a node always reads its own.
type readings []int64

// majorityOf reports whether the readings are those of a majority of the voters.
func (r readings) majorityOf(voters int) bool { return len(r) > voters/2 }

// lowerMedian returns the middle reading; of two middle ones the earlier.
func (r readings) lowerMedian() int64 { return r[(len(r)-1)/2] }

// upperMedian returns the middle reading; of two middle ones the later.
func (r readings) upperMedian() int64 { return r[len(r)/2] }

// highest returns the latest reading.
func (r readings) highest() int64 { return r[len(r)-1] }

// peerClocks are the wall clocks of the other voters, as SetPeerClocks last set them. The zero peerClocks has none, and is
// that of a lone ledger.
type peerClocks struct {
	voters  int           // of the cluster, this node included; 0: a lone ledger
	offsets []int64       // each wall clock minus this node's monotonic clock
	at      time.Duration // monotonic time at which they were set
	upper   int64         // the upper median of the last majority, minus the monotonic clock
	known   bool          // upper is set
	scratch [8]int64      // of read
}

// peerClocksLife is how long the clocks of other voters count after they were set. A node sets them twice a second.
const peerClocksLife = 2 * time.Second

// read returns the readings at mono, when this node's wall clock is own. They are valid until the next read.
func (p *peerClocks) read(mono time.Duration, own int64) readings {
	r := append(readings(p.scratch[:0]), own)
	if mono-p.at <= peerClocksLife {
		for _, offset := range p.offsets {
			r = append(r, int64(mono)+offset)
		}
	}
	slices.Sort(r)
	return r
}

// several reports whether there are other voters.
func (p *peerClocks) several() bool { return p.voters > 1 }

// setVoters sets the number of voters of the cluster.
func (c *ledgerClock) setVoters(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers.voters = n
}

// setPeers replaces the clocks of the other voters, read now, and the number of all voters.
func (c *ledgerClock) setPeers(walls []time.Time, voters int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, mono := &c.peers, c.source.Mono()
	p.voters, p.at, p.offsets = voters, mono, p.offsets[:0]
	for _, wall := range walls {
		p.offsets = append(p.offsets, wall.UnixNano()-int64(mono)) // any number, if that clock is far off
	}
	if r := c.tickLocked(); r.majorityOf(voters) {
		p.upper, p.known = r.upperMedian()-int64(mono), true
	}
}

// hasMajority reports whether a majority's clocks are known.
func (c *ledgerClock) hasMajority() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tickLocked().majorityOf(c.peers.voters)
}

// alone reports whether this node is the only voter, so that its own clock is the median.
func (c *ledgerClock) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.peers.several()
}

// upperTime returns the upper median of the clocks of the last majority, carried on by the monotonic clock; false before
// the first one.
func (c *ledgerClock) upperTime() (flight.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono := c.source.Mono()
	return milliseconds(int64(mono) + c.peers.upper), c.peers.known
}
