package clusterstore

import (
	"sync"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// waiters holds the goroutines that wait for a change of a flight. wake costs one atomic load while there are none.
type waiters struct {
	total  atomic.Int64
	shards [cacheShards]waiterShard
}

type waiterShard struct {
	mu    sync.Mutex // guards lists
	lists map[flight.ID]*waiterList
}

// waiterList is shared by all waiters of one flight; the next change closes its channel.
type waiterList struct {
	changed chan struct{}
	count   int
}

// join registers for the next change of a flight. A change published after join has returned closes the channel.
// Every join needs a leave.
func (w *waiters) join(id flight.ID) *waiterList {
	w.total.Add(1)
	s := &w.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = make(map[flight.ID]*waiterList)
	}
	l := s.lists[id]
	if l == nil {
		l = &waiterList{changed: make(chan struct{})}
		s.lists[id] = l
	}
	l.count++
	return l
}

func (w *waiters) leave(id flight.ID, l *waiterList) {
	w.total.Add(-1)
	s := &w.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	l.count--
	if l.count == 0 && s.lists[id] == l {
		delete(s.lists, id)
	}
}

// wake wakes the waiters of a changed flight.
func (w *waiters) wake(id flight.ID) {
	if w.total.Load() == 0 {
		return
	}
	s := &w.shards[id[0]%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lists[id]; l != nil {
		delete(s.lists, id)
		close(l.changed)
	}
}

// wakeAll wakes all waiters. Restore calls it after it has replaced the state.
func (w *waiters) wakeAll() {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for id, l := range s.lists {
			delete(s.lists, id)
			close(l.changed)
		}
		s.mu.Unlock()
	}
}
