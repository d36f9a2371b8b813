// Package deadline bounds many requests with few timers.
package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Shared returns contexts that end after a time-out: at least the time-out from now, and at most a quarter of it later.
// Requests share a context, because one timer per request costs more than the rest of a request's path.
type Shared struct {
	timeout time.Duration
	current atomic.Pointer[sharedContext]
	mu      sync.Mutex // held while a new context is created
}

// sharedContext is a context and its deadline.
type sharedContext struct {
	ctx    context.Context
	cancel context.CancelFunc
	end    time.Time
}

// New creates a Shared with the time-out d. Close must be called.
func New(d time.Duration) *Shared { return &Shared{timeout: d} }

// Context returns the shared context. It ends with its deadline, or with Close if it is the newest.
func (h *Shared) Context() context.Context {
	if current := h.current.Load(); current != nil && time.Until(current.end) >= h.timeout {
		return current.ctx
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if current := h.current.Load(); current != nil && time.Until(current.end) >= h.timeout {
		return current.ctx
	}
	current := &sharedContext{end: time.Now().Add(h.timeout + h.timeout/4)}
	current.ctx, current.cancel = context.WithDeadline(context.Background(), current.end)
	h.current.Store(current)
	return current.ctx
}

// Close ends the newest context. Call it when no request is left.
func (h *Shared) Close() {
	if r := h.current.Load(); r != nil {
		r.cancel()
	}
}
