package client

import (
	"sync"
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// trust is how long a session may be believed in: from the sending of a request for as long as its answer said.
type trust struct {
	mu    sync.Mutex
	until clock.Moment
}

// extend takes what an answer says; 0: it says nothing of trust.
func (t *trust) extend(sent clock.Moment, ms int64) {
	until := sent.Add(time.Duration(ms) * time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ms > 0 && until.After(t.until.Time) {
		t.until = until
	}
}

func (t *trust) left() time.Duration {
	t.mu.Lock()
	until := t.until
	t.mu.Unlock()
	return until.Left()
}

// openLife is how far ahead of the ledger's time a not_after is set: half of what the ledger allows, so that an estimate
// which is wrong by seconds does no harm.
const openLife = 30 * time.Second

// ledgerClock estimates the ledger's time: what the newest answer said of it, counted on by this machine's clocks. An
// estimate that is wrong costs an answer open_expired, and never an effect.
type ledgerClock struct {
	mu   sync.Mutex
	ms   int64        // as the answer said
	sent clock.Moment // when the request was sent that was answered
	came clock.Moment // when the answer came
}

// set takes the ledger's time from an answer, unless an answer to a later request has told it already.
func (l *ledgerClock) set(ms int64, sent clock.Moment) {
	if ms <= 0 {
		return // the answer does not say
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ms == 0 || !sent.Before(l.sent.Time) {
		l.ms, l.sent, l.came = ms, sent, clock.Now()
	}
}

// notAfter is a not_after for a nonce that is about to be sent; 0 where no answer has told the ledger's time yet.
func (l *ledgerClock) notAfter() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ms == 0 {
		return 0
	}
	now := clock.Now()
	passed := max(now.Sub(l.came.Time), now.Boot-l.came.Boot) // also while the machine slept
	return l.ms + (passed + openLife).Milliseconds()
}
