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
	parent  context.Context
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

// New creates a Shared with the time-out d, whose contexts end with the parent, too. Close must be called.
func New(parent context.Context, d time.Duration) *Shared { return &Shared{parent: parent, timeout: d} }

// Context returns the shared context. It ends with its deadline, or with Close if it is the newest.
func (s *Shared) Context() context.Context {
	if current := s.current.Load(); current != nil && time.Until(current.end) >= s.timeout {
		return current.ctx
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := s.current.Load(); current != nil && time.Until(current.end) >= s.timeout {
		return current.ctx
	}
	current := &sharedContext{end: time.Now().Add(s.timeout + s.timeout/4)}
	current.ctx, current.cancel = context.WithDeadline(s.parent, current.end)
	s.current.Store(current)
	return current.ctx
}

// Close ends the newest context. Call it when no request is left.
func (s *Shared) Close() {
	if r := s.current.Load(); r != nil {
		r.cancel()
	}
}
