// Package gate lets somebody who closes a thing wait for those who use it, and keeps others out afterwards.
package gate

import "sync"

// Gate is open until Close or Shut. The zero value is an open gate. Its methods may be called concurrently.
type Gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // made by Shut, closed when nobody is inside any more
}

// Enter answers false when the gate is closed; else Leave must follow.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside++
	}
	return !g.closed
}

// Leave ends what Enter began.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

// Join lets in what belongs to somebody inside, also when the gate is closed, and answers false where nobody is inside; else
// Leave must follow.
func (g *Gate) Join() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && g.inside == 0 {
		return false
	}
	g.inside++
	return true
}

// Go is Join for f, which it runs on a goroutine of its own.
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

// Shut lets nobody in any more. The channel is closed when all have left.
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

// Close lets nobody in any more and waits until all have left. It answers whether it was the first.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	first = !g.closed
	g.closed = true
	g.mu.Unlock()
	<-g.Shut()
	return first
}
