// Package horizon bounds the time of many requests with few timers.
package horizon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Horizon gives contexts that end some time from now: at least after d, and at most a quarter of it later. Callers share
// them, because a timer of its own for each request to a neighbour is dearer than everything else on the way there.
type Horizon struct {
	d   time.Duration
	now atomic.Pointer[reach]
	mu  sync.Mutex // held while a new one is made
}

// reach is a context and its end.
type reach struct {
	ctx    context.Context
	cancel context.CancelFunc
	end    time.Time
}

// New makes a horizon at the distance d. Close must be called.
func New(d time.Duration) *Horizon { return &Horizon{d: d} }

// Context ends with its time and with nothing else. It has no cancel function: it is shared.
func (h *Horizon) Context() context.Context {
	if r := h.now.Load(); r != nil && time.Until(r.end) >= h.d {
		return r.ctx
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.now.Load(); r != nil && time.Until(r.end) >= h.d {
		return r.ctx
	}
	r := &reach{end: time.Now().Add(h.d + h.d/4)}
	r.ctx, r.cancel = context.WithDeadline(context.Background(), r.end)
	h.now.Store(r)
	return r.ctx
}

// Close ends the newest context: nobody asks any more.
func (h *Horizon) Close() {
	if r := h.now.Load(); r != nil {
		r.cancel()
	}
}
