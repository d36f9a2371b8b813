package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// recall answers a call from memory where that is final; done says whether it was. If not, it gives the generation that
// the call is about, 0 for a key of which this node knows nothing.
func (ex *Executor) recall(id flight.ID, call *effect.Call) (result effect.Result, generation uint32, done bool, err error) {
	f, err := ex.cfg.Ledger.Flight(id)
	switch {
	case err != nil:
		return effect.Result{}, 0, true, ex.unavailable(call.Key, err)
	case f == nil:
		return effect.Result{}, 0, false, nil
	case f.State == flight.Absent, !f.State.Terminal() && !differs(f, &call.Submission):
		return effect.Result{}, f.Generation, false, nil
	}
	result, err = ex.answer(f, call, effect.Replayed)
	return result, f.Generation, true, err
}

// accompany waits for a trip that somebody else flies.
func (ex *Executor) accompany(ctx context.Context, t *trip, call effect.Call) (effect.Result, error) {
	if !t.call.Submission.Fingerprint.Matches(call.Submission.Fingerprint) {
		t.forget(context.Canceled)
		return effect.Result{}, &effect.Conflict{
			Key:    call.Key,
			Fields: differing(t.call.Submission.Input, call.Submission.Input),
		}
	}
	result, err := t.await(ctx, call.Wait, effect.Joined)
	if t.call.Submission.Fingerprint == call.Submission.Fingerprint || !t.over() {
		return result, err
	}
	// One of the two declared no input: what the trip flew under may be a third one's. The ledger knows.
	if f, unread := ex.cfg.Ledger.Flight(t.id); unread != nil {
		return effect.Result{}, ex.unavailable(call.Key, unread)
	} else if f != nil && (f.State.Terminal() || differs(f, &call.Submission)) {
		return ex.answer(f, &call, effect.Joined)
	}
	return result, err
}

// answer turns a flight that nobody is about to fly into what its callers get.
func (ex *Executor) answer(f *flight.Flight, call *effect.Call, as effect.Source) (effect.Result, error) {
	if err := ex.standing(f, call.Key, &call.Submission); err != nil {
		return effect.Result{}, err
	}
	return ex.receipt(f, nil, as)
}

// standing is nil where the flight has a receipt for this submission, else the error that says how it stands.
func (ex *Executor) standing(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	if f == nil {
		return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: the ledger gave no flight", key)}
	}
	if differs(f, s) {
		return ex.conflict(f, key, s)
	}
	switch f.State {
	case flight.Expired: // a tombstone, which names no key
		e := &effect.Expired{Key: key, Outcome: f.Was}
		if f.Receipt != nil {
			e.Digest = f.Receipt.Body.Digest
		}
		return e
	case flight.InDoubt:
		return &effect.InDoubt{Key: key, Version: f.Version, Cause: f.Cause}
	case flight.AwaitingApproval:
		return &effect.Unapproved{Key: key}
	case flight.StateSucceeded, flight.StateFailed, flight.StateCancelled:
		if f.Receipt == nil {
			return &effect.Failed{Key: key, State: f.State, Cause: f.Cause, Redacted: f.Redacted != nil}
		}
		return nil
	}
	return &effect.Busy{Key: key, State: f.State, RetryAfter: lastPoll}
}

// receipt is the result of a flight that has one. body is what is kept of the receipt's body where that is at hand.
func (ex *Executor) receipt(f *flight.Flight, body []byte, as effect.Source) (effect.Result, error) {
	r := f.Receipt
	if body == nil && r.Body.Kept > 0 {
		var err error
		if body, err = ex.cfg.Memory.ReceiptBody(f); err != nil {
			return effect.Result{}, &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("read the receipt of %s: %w", f.Key, err)}
		}
	}
	result := effect.Result{
		Key: f.Key, FlightID: f.ID, Outcome: r.Outcome, Source: as, Attempt: r.Attempt,
		Answer: effect.Answer{ExternalID: r.ExternalID, ContentType: r.Body.ContentType, Body: body},
		Digest: r.Body.Digest, Size: r.Body.Size, Truncated: r.Body.Truncated(), At: r.At.At(),
	}
	if r.Outcome == flight.Refused {
		return result, &effect.Declined{Result: result}
	}
	return result, nil
}

// conflict names what differs, as far as both inputs are at hand.
func (ex *Executor) conflict(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	c := &effect.Conflict{Key: key}
	if f.Input.Kept == 0 || s.Input.Data == nil {
		return c
	}
	if stored, err := ex.cfg.Memory.Input(f); err == nil {
		first := f.Input
		first.Data = stored
		c.Fields = differing(first, s.Input)
	}
	return c
}

func differing(a, b flight.Blob) []string { return flight.DifferingFields(a.Data, b.Data, nil) }

// unavailable gives an error of a neighbour the class that callers know.
func (ex *Executor) unavailable(key flight.Key, err error) error {
	switch {
	case errors.Is(err, lease.ErrClosed), errors.Is(err, effect.ErrClosed):
		return effect.ErrClosed
	case errors.Is(err, lease.ErrUnavailable), errors.Is(err, lease.ErrRegressed), errors.Is(err, lease.ErrForeign), errors.Is(err, lease.ErrLost):
		return &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", key, err)}
	}
	return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: %w", key, err)}
}
