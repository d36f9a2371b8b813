package client

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
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

const (
	// maxNonceWait is how long an open waits for other callers under one nonce.
	maxNonceWait = 15 * time.Second
	// minOpenMargin and maxOpenMargin bound how much longer than the wait of its open a nonce may open an attempt. A copy
	// that the network made of an open is harmless after that time.
	minOpenMargin, maxOpenMargin = 2 * time.Second, 30 * time.Second
)

// ledgerClock estimates the ledger's time from answers and this machine's clocks. A wrong estimate causes an answer
// open_expired; it never causes a second effect.
type ledgerClock struct {
	mu         sync.Mutex
	margin     time.Duration // of the next not_after, at least minOpenMargin
	reported   int64         // ledger time in the answer; 0: none yet
	receivedAt clock.Instant // when the answer came
}

// set stores the ledger's time from an answer, unless the present estimate is later: the answer of a slow network or of a
// node that is behind does not set the time back. An exact time, that of an answer open_expired, replaces each estimate: the
// answer has shown that the estimate is wrong.
//
// Without exact times, a machine whose clock is fast would be ahead of the ledger by more with each day, and at last open
// nothing.
func (l *ledgerClock) set(ms int64, exact bool) {
	if ms <= 0 {
		return // the answer has none
	}
	now := clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if exact || ms > l.estimateLocked(now) {
		l.reported, l.receivedAt = ms, now
	}
}

// estimateLocked returns the ledger's time, or 0 before the first answer. The caller holds l.mu.
func (l *ledgerClock) estimateLocked(now clock.Instant) int64 {
	if l.reported == 0 {
		return 0
	}
	passed := max(now.Sub(l.receivedAt.Time), now.SinceBoot-l.receivedAt.SinceBoot) // the monotonic clock stops while the machine is suspended
	return l.reported + passed.Milliseconds()
}

// adaptMargin doubles the margin after an answer open_expired, for a ledger or a network that takes longer, and resets it
// after an attempt was opened.
func (l *ledgerClock) adaptMargin(expired bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.margin = min(2*max(l.margin, minOpenMargin), maxOpenMargin); !expired {
		l.margin = minOpenMargin
	}
}

// validity returns how far ahead of the ledger's time the not_after of an open with this wait is set.
func (l *ledgerClock) validity(wait time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(wait+max(l.margin, minOpenMargin), flight.MaxOpenLife-minOpenMargin)
}

// notAfter returns the not_after of an open with this validity, or 0 before the first answer.
func (l *ledgerClock) notAfter(validity time.Duration) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reported == 0 {
		return 0
	}
	return l.estimateLocked(clock.Now()) + validity.Milliseconds()
}

// ledgerIndex is the greatest position of the ledger that an answer named. The client sends it with each request, and a node
// answers only from a ledger that is at least as new: callers never see time go back. A client has one deployment, so the
// position is never that of another ledger.
type ledgerIndex struct {
	greatest atomic.Pointer[wire.Index] // nil: none was named
}

// note stores the position that an answer names.
func (l *ledgerIndex) note(answer http.Header) {
	if index, err := wire.ParseIndex(answer.Get(wire.HeaderIndex)); err == nil {
		l.raise(index)
	}
}

// noteEntry stores the position of an event, in the epoch of the answer whose header was noted last.
func (l *ledgerIndex) noteEntry(event string) {
	if v, err := flight.ParseVersion(event); err == nil {
		if known := l.greatest.Load(); known != nil {
			l.raise(wire.Index{Epoch: known.Epoch, Entry: v.Index})
		}
	}
}

func (l *ledgerIndex) raise(index wire.Index) {
	for known := l.greatest.Load(); known == nil || index.After(*known); known = l.greatest.Load() {
		if l.greatest.CompareAndSwap(known, &index) {
			return
		}
	}
}

// header returns the position for a request, or "" before the first answer.
func (l *ledgerIndex) header() string {
	if index := l.greatest.Load(); index != nil {
		return index.String()
	}
	return ""
}
