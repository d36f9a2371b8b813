package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// pollEvery is how often a waiter asks although no hint came: watches may be lost.
const pollEvery = 1500 * time.Millisecond

// Acquire implements Session.
func (s *session) Acquire(ctx context.Context, key flight.Key) (Lease, error) {
	return s.acquire(ctx, key, false)
}

// TryAcquire implements Session.
func (s *session) TryAcquire(ctx context.Context, key flight.Key) (Lease, error) {
	return s.acquire(ctx, key, true)
}

func (s *session) acquire(ctx context.Context, key flight.Key, tries bool) (Lease, error) {
	d := s.desk
	if _, err := s.current(); err != nil {
		return nil, err
	}
	if err := d.slots.enter(ctx, key, tries); err != nil {
		return nil, err
	}
	// From here on the turn on the key is ours until a hold or an operation in flight takes it over.
	for {
		h, err := s.claim(ctx, key)
		var gone *desertedError
		var held *heldEntry
		switch {
		case err == nil:
			return h, nil
		case errors.As(err, &gone):
			return nil, gone.cause // the operation in flight has the turn
		case errors.As(err, &held):
			if err = d.waitFor(ctx, held, tries); err == nil {
				continue
			}
		case errors.Is(err, ErrLost) && s.spec.Kept && ctx.Err() == nil && !d.isClosed():
			continue // under a new term
		}
		d.slots.leave(key)
		return nil, err
	}
}

// heldEntry is a claim refused, with what stands in its way.
type heldEntry struct {
	HeldError
	entry Entry
}

// desertedError says that the caller went away while its claim was on its way.
type desertedError struct{ cause error }

func (e *desertedError) Error() string { return "lease: the caller went away: " + e.cause.Error() }

// claim makes one try at the key.
func (s *session) claim(ctx context.Context, key flight.Key) (*hold, error) {
	t, err := s.term(ctx)
	if err != nil {
		return nil, err
	}
	d := s.desk
	o := &op{key: key, term: t, nonce: d.nonce.Add(1), done: make(chan struct{}, 1)}
	o.Op = Op{Kind: OpClaim, Key: key.String(), Session: t.id, Lease: t.lease, Value: recordValue(t.prefix, o.nonce)}
	if !d.batch.put(o) {
		return nil, ErrClosed
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.state.CompareAndSwap(opWaiting, opDeserted) {
			return nil, &desertedError{context.Cause(ctx)}
		}
		<-o.done
	}
	return d.outcome(t, o)
}

// outcome turns the answer to a claim into a hold or an error.
func (d *Desk) outcome(t *term, o *op) (*hold, error) {
	switch {
	case o.err != nil:
		return nil, o.err
	case o.Done:
		h, err := newHold(t, o.key, o.Revision)
		if err == nil {
			d.cfg.Events.claimed(o.key, h.claim)
		}
		return h, err
	case o.Holder == nil:
		err := fmt.Errorf("%w: etcd does not know session %s", ErrLost, t.id)
		t.end(err)
		return nil, err
	}
	held, err := o.Holder.held()
	if err != nil {
		return nil, fmt.Errorf("%w: %q", err, o.Holder.Key)
	}
	return nil, &heldEntry{HeldError: HeldError(held), entry: *o.Holder}
}

// Error makes heldEntry an error of its own; callers outside see the HeldError in it.
func (h *heldEntry) Error() string { return h.HeldError.Error() }

// waitFor waits until the claim in the way may be gone. Those that only try get the HeldError at once. A claim of our
// own that nobody here owns is removed instead.
func (d *Desk) waitFor(ctx context.Context, held *heldEntry, tries bool) error {
	if ours, err := d.evict(ctx, held.entry); ours {
		return err
	}
	if tries {
		return &held.HeldError
	}
	d.slots.elsewhere(held.Key, &held.HeldError)
	watching, stop := context.WithTimeout(ctx, jitter(pollEvery))
	defer stop()
	defer context.AfterFunc(d.life, stop)()
	d.cfg.Registry.Gone(watching, held.entry.Key, held.entry.Seen)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case d.isClosed():
		return ErrClosed
	}
	return nil
}

func (d *Desk) isClosed() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}
