package clusterstore

import (
	"sync"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// waiters are those who wait for a change of a flight. Waking costs nothing while nobody waits.
type waiters struct {
	total  atomic.Int64
	shards [cacheShards]waiterShard
}

type waiterShard struct {
	mu    sync.Mutex
	lists map[flight.ID]*waiterList
}

// waiterList is shared by all who wait for one flight; its channel is closed by the next change.
type waiterList struct {
	changed chan struct{}
	count   int
}

// join registers interest in the next change of a flight. A change that is published after join returned closes the
// channel. Every join needs its leave.
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

// wake tells those who wait for a flight that it changed.
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

// wakeAll is for a state that was replaced as a whole.
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
