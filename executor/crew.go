package executor

import "sync"

// crew counts what is under way, so that Close can let it finish. New calls are refused from the moment it drains;
// what is under way may still start what belongs to it, until the last one is home.
type crew struct {
	mu       sync.Mutex
	aboard   int
	draining bool
	home     chan struct{} // closed when it drains and nobody is aboard
}

func newCrew() *crew { return &crew{home: make(chan struct{})} }

// enter lets a new call in; false once the crew drains.
func (c *crew) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.aboard++
	}
	return !c.draining
}

// enterMore lets in what belongs to something under way; false once all are home.
func (c *crew) enterMore() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining && c.aboard == 0 {
		return false
	}
	c.aboard++
	return true
}

// more runs what belongs to something under way on a goroutine of its own.
func (c *crew) more(f func()) {
	c.enterMore() // whoever asks is aboard, so this one is let in
	go func() {
		defer c.leave()
		f()
	}()
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aboard--
	if c.draining && c.aboard == 0 {
		close(c.home)
	}
}

// drain refuses new calls and gives a channel that is closed when all are home.
func (c *crew) drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining = true
		if c.aboard == 0 {
			close(c.home)
		}
	}
	return c.home
}
