package executor

import (
	"context"
	"sync"
	"time"

	"github.com/flightd/flightd/internal/caller"
)

// lazyContext is a context that costs next to nothing until somebody waits for its end: most trips and attempts are over
// before anybody does, and a real context takes a place in a map that all of the process share.
//
// It ends with end or with its parent. end must be called.
type lazyContext struct {
	parent context.Context
	inside *caller.Inside // nil: it is none of a handler

	mu     sync.Mutex
	cause  error // of end
	real   context.Context
	cancel context.CancelCauseFunc
}

func (c *lazyContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// wake makes the real one, for those who wait.
func (c *lazyContext) wake() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil {
		c.real, c.cancel = context.WithCancelCause(c.parent)
		if c.cause != nil {
			c.cancel(c.cause)
		}
	}
	return c.real
}

// Err implements context.Context.
func (c *lazyContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return context.Canceled
	}
	return c.parent.Err()
}

// Done implements context.Context.
func (c *lazyContext) Done() <-chan struct{} { return c.wake().Done() }

// Deadline implements context.Context.
func (c *lazyContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value implements context.Context; context.Cause asks it for the cause.
func (c *lazyContext) Value(key any) any {
	if v, ok := c.inside.Value(key); ok {
		return v
	}
	return c.wake().Value(key)
}
