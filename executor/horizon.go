package executor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// horizon gives contexts that end some time from now: at least after d, and at most a quarter of it later. Callers share
// them, because a timer of its own for each request to a neighbour is dearer than everything else on the way there.
type horizon struct {
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

func newHorizon(d time.Duration) *horizon { return &horizon{d: d} }

// context ends with its time and with nothing else. It has no cancel function: it is shared.
func (h *horizon) context() context.Context {
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

// close ends the newest context: nobody asks any more.
func (h *horizon) close() {
	if r := h.now.Load(); r != nil {
		r.cancel()
	}
}
