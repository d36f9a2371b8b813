package client

import (
	"sync"
	"time"

	"github.com/flightd/flightd/internal/clock"
)

// trustWindow is the time in which effects may start under a session. It counts from when the answered request was sent.
type trustWindow struct {
	mu    sync.Mutex
	until clock.Instant
}

// extend extends trust by an answer; ms is 0 when the answer grants none.
func (t *trustWindow) extend(sent clock.Instant, ms int64) {
	until := sent.Add(time.Duration(ms) * time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ms > 0 && until.After(t.until.Time) {
		t.until = until
	}
}

func (t *trustWindow) remaining() time.Duration {
	t.mu.Lock()
	until := t.until
	t.mu.Unlock()
	return until.Remaining()
}

// openValidity is how far ahead of the ledger's time a not_after is set. It is half of the maximum, so that an estimate
// wrong by seconds does no harm.
const openValidity = 30 * time.Second

// ledgerClock estimates the ledger's time from the newest answer and this machine's clocks. A wrong estimate causes an
// answer open_expired; it never causes a second effect.
type ledgerClock struct {
	mu         sync.Mutex
	reported   int64         // ledger time in the answer; 0: none yet
	sentAt     clock.Instant // when the answered request was sent
	receivedAt clock.Instant // when the answer came
}

// set stores the ledger's time from an answer, unless an answer to a later request has set it already.
func (l *ledgerClock) set(ms int64, sent clock.Instant) {
	if ms <= 0 {
		return // the answer has none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reported == 0 || !sent.Before(l.sentAt.Time) {
		l.reported, l.sentAt, l.receivedAt = ms, sent, clock.Now()
	}
}

// notAfter returns the not_after for a new nonce; 0 before the first answer.
func (l *ledgerClock) notAfter() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reported == 0 {
		return 0
	}
	now := clock.Now()
	passed := max(now.Sub(l.receivedAt.Time), now.SinceBoot-l.receivedAt.SinceBoot) // the monotonic clock stops while the machine is suspended
	return l.reported + (passed + openValidity).Milliseconds()
}
