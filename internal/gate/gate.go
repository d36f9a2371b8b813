// Package gate counts work in flight: Close rejects new work and waits until the counted work has ended.
package gate

import "sync"

// Gate is open until Close or BeginClose. The zero value is an open gate. Its methods may be called concurrently.
type Gate struct {
	mu      sync.Mutex // guards all fields
	closed  bool
	count   int
	drained chan struct{} // created by BeginClose, closed when the count is zero
}

// Enter counts one user, and returns false if the gate is closed. After true, Leave must follow.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.count++
	}
	return !g.closed
}

// Leave ends an Enter or an EnterNested.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count--; g.count == 0 && g.drained != nil {
		close(g.drained)
	}
}

// EnterNested counts work that belongs to a counted user, even if the gate is closed. It returns false if the gate is
// closed and the count is zero. After true, Leave must follow.
func (g *Gate) EnterNested() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && g.count == 0 {
		return false
	}
	g.count++
	return true
}

// Go is EnterNested for f, which runs on a new goroutine. Close waits for it.
func (g *Gate) Go(f func()) bool {
	if !g.EnterNested() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// BeginClose rejects new users. The returned channel is closed when the count is zero.
func (g *Gate) BeginClose() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.drained == nil {
		g.drained = make(chan struct{})
		if g.count == 0 {
			close(g.drained)
		}
	}
	return g.drained
}

// Close rejects new users and waits until the count is zero. It reports whether this call was the first Close.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	first = !g.closed
	g.closed = true
	g.mu.Unlock()
	<-g.BeginClose()
	return first
}
