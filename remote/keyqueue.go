package remote

import (
	"context"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

const (
	// recheck is after how long a caller that waits looks again by itself, in case that what it waits for ends without a
	// change of the flight.
	recheck = time.Second
	// retryPause is the pause before a command is proposed again whose answer was lost.
	retryPause = 10 * time.Millisecond
)

// keyQueue lets one opener of a key at a time propose its Open; the others then look what became of it.
type keyQueue struct {
	mu    sync.Mutex
	queue map[flight.ID]*keyTurn
}

type keyTurn struct {
	taken   chan struct{}
	waiting int // with the one whose turn it is
}

// enter waits until it is this opener's turn, or ctx ends. leave must be called once.
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
	case t.taken <- struct{}{}: // also where ctx has ended: nobody is in the way
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
