// Package deadline bounds many requests with few timers.
package horizon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Shared returns contexts that end after a time-out: at least the time-out from now, and at most a quarter of it later.
// Requests share a context, because one timer per request costs more than the rest of a request's path.
type Horizon struct {
	d   time.Duration
	now atomic.Pointer[reach]
	mu  sync.Mutex // held while a new context is created
}

// sharedContext is a context and its deadline.
type reach struct {
	ctx    context.Context
	cancel context.CancelFunc
	end    time.Time
}

// New creates a Shared with the time-out d. Close must be called.
func New(d time.Duration) *Horizon { return &Horizon{d: d} }

// Context returns the shared context. It ends with its deadline, or with Close if it is the newest.
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

// Close ends the newest context. Call it when no request is left.
func (h *Horizon) Close() {
	if r := h.now.Load(); r != nil {
		r.cancel()
	}
}
