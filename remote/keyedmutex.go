package remote

import (
	"context"
	"sync"

	"github.com/flightd/flightd/flight"
)

// keyedMutex is one mutex per flight, so that one opener of a key at this node proposes at a time.
type keyedMutex struct {
	mu    sync.Mutex // guards locks, and keyLock.users
	locks map[flight.ID]*keyLock
}

// keyLock exists while it has users.
type keyLock struct {
	held  chan struct{} // of capacity 1; full while the lock is held
	users int           // the holder and the waiters
}

// lock waits for the lock, or until ctx ends. unlock must be called once.
func (m *keyedMutex) lock(ctx context.Context, id flight.ID) (unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks = make(map[flight.ID]*keyLock)
	}
	l := m.locks[id]
	if l == nil {
		l = &keyLock{held: make(chan struct{}, 1)}
		m.locks[id] = l
	}
	l.users++
	m.mu.Unlock()
	unlock = func() { <-l.held; m.release(id, l) }
	select {
	case l.held <- struct{}{}: // a free lock is taken even if ctx has ended
		return unlock, nil
	default:
	}
	select {
	case l.held <- struct{}{}:
		return unlock, nil
	case <-ctx.Done():
		m.release(id, l)
		return nil, ctx.Err()
	}
}

func (m *keyedMutex) release(id flight.ID, l *keyLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(m.locks, id)
	}
}
