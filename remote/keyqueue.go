package remote

import (
	"context"
	"sync"

	"github.com/flightd/flightd/flight"
)

// keyedMutex is one mutex per flight, so that one opener of a key at this node proposes at a time.
type keyQueue struct {
	mu    sync.Mutex // guards locks, and keyLock.users
	queue map[flight.ID]*keyTurn
}

// keyLock exists while it has users.
type keyTurn struct {
	taken   chan struct{} // of capacity 1; full while the lock is held
	waiting int           // the holder and the waiters
}

// lock waits for the lock, or until ctx ends. unlock must be called once.
func (q *keyQueue) enter(ctx context.Context, id flight.ID) (leave func(), err error) {
	q.mu.Lock()
	if q.queue == nil {
		q.queue = make(map[flight.ID]*keyTurn)
	}
	t := q.queue[id]
	if t == nil {
		t = &keyTurn{taken: make(chan struct{}, 1)}
		q.queue[id] = t
	}
	t.waiting++
	q.mu.Unlock()
	leave = func() { <-t.taken; q.drop(id, t) }
	select {
	case t.taken <- struct{}{}: // a free lock is taken even if ctx has ended
		return leave, nil
	default:
	}
	select {
	case t.taken <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		q.drop(id, t)
		return nil, ctx.Err()
	}
}

func (q *keyQueue) drop(id flight.ID, t *keyTurn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		delete(q.queue, id)
	}
}
