package executor

import "sync"

// runners are goroutines that fly one trip after the other. They are kept for a while because a fresh one begins with a
// small stack and grows it several times on its first trip, which costs more than the trip.
type runners struct {
	idle chan *trip // unbuffered: taken by a runner that is idle, or by none
	over chan struct{}
	all  sync.WaitGroup

	mu      sync.Mutex
	waiting int
	closed  bool
}

// mostIdle is how many runners wait for work at once; more than that end with their trip.
const mostIdle = 256

func newRunners() *runners { return &runners{idle: make(chan *trip), over: make(chan struct{})} }

// run flies the trip on a goroutine of its own, a waiting one if there is one.
func (rs *runners) run(t *trip, fly func(*trip)) {
	select {
	case rs.idle <- t:
		return
	default:
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed {
		go fly(t) // the crew waits for it
		return
	}
	rs.all.Go(func() {
		for ; t != nil; t = rs.next() {
			fly(t)
		}
	})
}

// next waits for another trip; nil when there is none for this runner.
func (rs *runners) next() *trip {
	if !rs.rest(1) {
		return nil
	}
	defer rs.rest(-1)
	select {
	case t := <-rs.idle:
		return t
	case <-rs.over:
		return nil
	}
}

// rest counts a runner in or out of those that wait, and reports whether it may wait.
func (rs *runners) rest(by int) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if by > 0 && (rs.closed || rs.waiting >= mostIdle) {
		return false
	}
	rs.waiting += by
	return true
}

// close sends the waiting runners home. Those that still fly are waited for by the crew, and end with their trip.
func (rs *runners) close() {
	rs.mu.Lock()
	if !rs.closed {
		rs.closed = true
		close(rs.over)
	}
	rs.mu.Unlock()
}

// wait returns when all runners have ended.
func (rs *runners) wait() { rs.all.Wait() }
