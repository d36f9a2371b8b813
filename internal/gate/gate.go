// Package gate lets somebody who closes a thing wait for those who use it, and keeps others out afterwards.
package gate

import "sync"

// Gate is open until Close. The zero value is an open gate. Its methods may be called concurrently.
type Gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// Enter answers false when the gate is closed; else Leave must follow.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

// Leave ends what Enter began.
func (g *Gate) Leave() { g.inside.Done() }

// Close lets nobody in any more and waits until all have left. It answers whether it was the first.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	first, g.closed = !g.closed, true
	g.mu.Unlock()
	g.inside.Wait()
	return first
}
