package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// hold is a claim that somebody in this process holds: the Lease of this package.
type hold struct {
	term  *term
	key   flight.Key
	claim flight.Claim
	state atomic.Int32

	mu     sync.Mutex
	cause  error           // why it is over
	ctx    context.Context // made for the first who asks: most claims are over before anybody waits for their end
	cancel context.CancelCauseFunc
}

// The states of a hold.
const (
	holdHeld     int32 = iota
	holdLost           // with its term
	holdReleased       // or taken away
)

// newHold makes the hold of a claim that was just made. It takes over the turn on the key, except when the term has
// ended meanwhile: then there is no hold, and the turn stays with the caller. One that was taken away meanwhile has given
// the turn on already: the caller gets it as it is, over.
func newHold(t *term, key flight.Key, revision int64) (*hold, error) {
	h := &hold{term: t, key: key, claim: flight.Claim{Epoch: t.epoch, Revision: revision, Session: t.id}}
	t.desk.slots.occupy(key, h) // before add: from there on the end of the term may take the hold away again
	err := t.add(h)
	if err == nil || !h.state.CompareAndSwap(holdHeld, holdLost) {
		return h, nil
	}
	h.end(err)
	h.Release() // the claim may stand
	return nil, err
}

// Claim implements Lease.
func (h *hold) Claim() flight.Claim { return h.claim }

// Context implements Lease.
func (h *hold) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		// Not a child of a context of the term: that would cost every claim a place in one shared map. The term cancels.
		h.ctx, h.cancel = context.WithCancelCause(context.Background())
		if h.cause != nil {
			h.cancel(h.cause)
		}
	}
	return h.ctx
}

// end ends the context.
func (h *hold) end(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cause = cause
	if h.cancel != nil {
		h.cancel(cause)
	}
}

// Trust implements Lease.
func (h *hold) Trust() time.Duration {
	if h.state.Load() != holdHeld {
		return 0
	}
	return h.term.trust()
}

// Release implements Lease.
func (h *hold) Release() { h.giveUp(ErrReleased) }

// giveUp ends the hold for that cause and lets the key go in the background. A claim that was lost by the silence of this
// process alone stands for as long as its session is renewed through another one: it is let go, too.
func (h *hold) giveUp(cause error) {
	switch h.state.Swap(holdReleased) {
	case holdHeld:
		h.end(cause)
		h.term.drop(h)
		h.term.desk.letGo(h)
	case holdLost:
		if h.term.silent() {
			h.term.desk.letGoLost(h)
		}
	}
}

// lose ends the hold with its term, and with it the turn on the key.
func (h *hold) lose(cause error) {
	if !h.state.CompareAndSwap(holdHeld, holdLost) {
		return
	}
	h.end(cause)
	h.term.desk.slots.leave(h.key)
}
