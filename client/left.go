package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// leftOpens has the nonces without a session that were given up after answers without a proposal. A copy that the network
// made of such an open may open an attempt until its not_after, which no renewal lists: its abandon is sent when not_after
// has passed, and sooner by Close. At most one abandon per key and second is sent, so that the callers of one hot key
// do not load the ledger. An abandon after not_after uses up none of the nonces that the ledger remembers for a key.
//
// If the process dies before, such an attempt ends with its session, and the recovery policy decides.
type leftOpens struct {
	client *Client

	mu      sync.Mutex // guards the fields below
	waiting []*opening // in the order in which they were given up
	running bool       // loop runs
}

// maxLeftOpens bounds leftOpens.waiting: the oldest is dropped.
const maxLeftOpens = 1000

const (
	// leftInterval is the pause between two rounds. A round sends at most one abandon per key.
	leftInterval = time.Second
	// leftGrace is how long after not_after an abandon is sent, for a ledger whose time was estimated too late.
	leftGrace = 100 * time.Millisecond
)

// add gives up a nonce. The caller is counted in runner.Work.
func (l *leftOpens) add(o *opening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= maxLeftOpens {
		l.waiting = l.waiting[1:]
	}
	l.waiting = append(l.waiting, o)
	if !l.running {
		l.running = l.client.loops.Go(l.loop)
	}
}

// loop sends the abandons until none is left, or Close begins.
func (l *leftOpens) loop() {
	for clock.Sleep(l.client.runner.DrainContext, leftInterval) {
		l.sendRound(l.client.runner.DrainContext, false)
		l.mu.Lock()
		more := len(l.waiting) > 0
		l.running = more
		l.mu.Unlock()
		if !more {
			return
		}
	}
}

// sendRound sends one abandon for each key, if its not_after has passed or Close has begun. It stops when no server
// answers. An abandon that was not answered stays for the next round.
func (l *leftOpens) sendRound(ctx context.Context, closing bool) {
	l.mu.Lock()
	due := make(map[flight.Key]*opening)
	for _, o := range l.waiting {
		if due[o.key] == nil && (closing || o.expiresAt.Remaining() <= -leftGrace) {
			due[o.key] = o
		}
	}
	l.mu.Unlock()
	for _, o := range due {
		answered := o.tryAbandon(ctx)
		if answered || -o.expiresAt.Remaining() > abandonTimeout {
			l.mu.Lock()
			l.waiting = slices.DeleteFunc(l.waiting, func(w *opening) bool { return w == o })
			l.mu.Unlock()
		}
		if !answered {
			return
		}
	}
}

// close sends what is left: one abandon per key. It runs when no call is left, or Close waits for none.
func (l *leftOpens) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeSessionTimeout)
	defer cancel()
	l.sendRound(ctx, true)
}
