package lease

import (
	"context"
	"slices"
	"sync"

	"github.com/flightd/flightd/flight"
)

// slots are the keys that somebody in this process claims, holds or lets go: at most one at a time for each key, so
// that goroutines of one process never race in etcd, and never hold one key twice.
type slots struct {
	mu     sync.Mutex
	byKey  map[flight.Key]*slot
	closed <-chan struct{}
}

type slot struct {
	hold    *hold      // nil while it is being claimed or let go
	seen    *HeldError // its head waits for this holder elsewhere
	waiters []*waiter
}

// waiter waits for its turn. The answer is nil for "it is your turn", or who has the key, for those that only try.
type waiter struct {
	answer chan *HeldError
	tries  bool
}

// enter waits for the turn on the key. With nil the caller owns the slot until leave; it must leave, or hand its turn
// to a hold or to an operation in flight.
func (s *slots) enter(ctx context.Context, key flight.Key, tries bool) error {
	s.mu.Lock()
	at, busy := s.byKey[key]
	if !busy {
		s.byKey[key] = &slot{}
		s.mu.Unlock()
		return nil
	}
	if tries {
		if held := at.heldBy(key); held != nil {
			s.mu.Unlock()
			return held
		}
	}
	w := &waiter{answer: make(chan *HeldError, 1), tries: tries}
	at.waiters = append(at.waiters, w)
	s.mu.Unlock()
	return s.await(ctx, key, w)
}

func (s *slots) await(ctx context.Context, key flight.Key, w *waiter) error {
	var err error
	select {
	case held := <-w.answer:
		if held != nil {
			return held
		}
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.closed:
		err = ErrClosed
	}
	s.mu.Lock()
	if at := s.byKey[key]; at != nil {
		at.waiters = slices.DeleteFunc(at.waiters, func(o *waiter) bool { return o == w })
	}
	s.mu.Unlock()
	select {
	case held := <-w.answer:
		if held == nil {
			s.leave(key) // it was given the turn at the same moment
		}
	default:
	}
	return err
}

// leave gives the turn to the next one.
func (s *slots) leave(key flight.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.byKey[key]
	if at == nil {
		return
	}
	at.hold, at.seen = nil, nil
	if len(at.waiters) == 0 {
		delete(s.byKey, key)
		return
	}
	next := at.waiters[0]
	at.waiters = at.waiters[1:]
	next.answer <- nil
}

// occupy says that the key is held now. Those that only try are told so.
func (s *slots) occupy(key flight.Key, h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.byKey[key]
	at.hold, at.seen = h, nil
	at.tellTriers(key)
}

// elsewhere says that the owner of the turn waits for a holder in another process.
func (s *slots) elsewhere(key flight.Key, held *HeldError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.byKey[key]
	at.seen = held
	at.tellTriers(key)
}

// vacate says that the hold is being let go; its turn lasts until leave.
func (s *slots) vacate(key flight.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.byKey[key]; at != nil {
		at.hold = nil
	}
}

// holder is the hold on the key in this process, or nil.
func (s *slots) holder(key flight.Key) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.byKey[key]; at != nil {
		return at.hold
	}
	return nil
}

func (at *slot) heldBy(key flight.Key) *HeldError {
	if at.hold != nil {
		return &HeldError{Key: key, Claim: at.hold.claim, Owner: at.hold.term.owner}
	}
	return at.seen
}

func (at *slot) tellTriers(key flight.Key) {
	held := at.heldBy(key)
	if held == nil || len(at.waiters) == 0 {
		return
	}
	at.waiters = slices.DeleteFunc(at.waiters, func(w *waiter) bool {
		if w.tries {
			w.answer <- held
		}
		return w.tries
	})
}
