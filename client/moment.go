package client

import (
	"sync"
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// trust is the time in which effects may start under a session. It counts from when the answered request was sent.
type trust struct {
	mu    sync.Mutex
	until clock.Moment
}

// extend extends trust by an answer; ms is 0 when the answer grants none.
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

// openValidity is how far ahead of the ledger's time a not_after is set. It is half of the maximum, so that an estimate
// wrong by seconds does no harm.
const openLife = 30 * time.Second

// ledgerClock estimates the ledger's time from the newest answer and this machine's clocks. A wrong estimate causes an
// answer open_expired; it never causes a second effect.
type ledgerClock struct {
	mu   sync.Mutex
	ms   int64        // ledger time in the answer; 0: none yet
	sent clock.Moment // when the answered request was sent
	came clock.Moment // when the answer came
}

// set stores the ledger's time from an answer, unless an answer to a later request has set it already.
func (l *ledgerClock) set(ms int64, sent clock.Moment) {
	if ms <= 0 {
		return // the answer has none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ms == 0 || !sent.Before(l.sent.Time) {
		l.ms, l.sent, l.came = ms, sent, clock.Now()
	}
}

// notAfter returns the not_after for a new nonce; 0 before the first answer.
func (l *ledgerClock) notAfter() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ms == 0 {
		return 0
	}
	now := clock.Now()
	passed := max(now.Sub(l.came.Time), now.Boot-l.came.Boot) // the monotonic clock stops while the machine is suspended
	return l.ms + (passed + openLife).Milliseconds()
}
