// Package gate counts work in flight: Close rejects new work and waits until the counted work has ended.
package gate

import "sync"

// Gate is open until Close or BeginClose. The zero value is an open gate. Its methods may be called concurrently.
type Gate struct {
	mu     sync.Mutex // guards all fields
	closed bool
	inside int
	empty  chan struct{} // created by BeginClose, closed when the count is zero
}

// Enter counts one user, and returns false if the gate is closed. After true, Leave must follow.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside++
	}
	return !g.closed
}

// Leave ends an Enter or an EnterNested.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

// EnterNested counts work that belongs to a counted user, even if the gate is closed. It returns false if the gate is
// closed and the count is zero. After true, Leave must follow.
func (g *Gate) Join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && g.inside == 0 {
		return false
	}
	g.inside++
	return true
}

// Go is EnterNested for f, which runs on a new goroutine. Close waits for it.
func (g *Gate) Go(f func()) bool {
	if !g.Join() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// BeginClose rejects new users. The returned channel is closed when the count is zero.
func (g *Gate) Shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.empty == nil {
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

// Close rejects new users and waits until the count is zero. It reports whether this call was the first Close.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	first = !g.closed
	g.closed = true
	g.mu.Unlock()
	<-g.Shut()
	return first
}
