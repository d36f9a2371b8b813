// Package answer turns flights, and the errors of etcd and of the ledger, into what callers get: results and the errors
// of package effect. The executor and the service for remote callers share it.
package answer

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// RetryAfter is how long a caller that meets a busy key is asked to wait.
const RetryAfter = time.Second

// Memory is what is read of the ledger to answer.
type Memory interface {
	Header() flight.Header
	// Input gives the exact bytes of the flight's input.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody gives the exact bytes that are kept of the receipt's body.
	ReceiptBody(f *flight.Flight) ([]byte, error)
}

// Writer answers from one ledger.
type Writer struct{ Memory Memory }

// IsFinal reports whether nobody but a person can change what callers are told of a flight.
func IsFinal(f *flight.Flight) bool {
	return f != nil && (f.State.Terminal() || f.State == flight.InDoubt || f.State == flight.AwaitingApproval)
}

// Differs reports whether the key belongs to another input than this submission's.
func Differs(f *flight.Flight, s *flight.Submission) bool {
	return f != nil && f.State != flight.Absent && !f.Fingerprint.Matches(s.Fingerprint)
}

// Final is nil where the flight has a receipt for this submission, else the error that says how it stands.
func (w Writer) Final(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	if f == nil {
		return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: the ledger gave no flight", key)}
	}
	if Differs(f, s) {
		return w.conflict(f, key, s)
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
	return &effect.Busy{Key: key, State: f.State, RetryAfter: RetryAfter}
}

// Receipt is the result of a flight that has one. body is what is kept of the receipt's body where that is at hand.
func (w Writer) Receipt(f *flight.Flight, body []byte, as effect.Source) (effect.Result, error) {
	r := f.Receipt
	if body == nil && r.Body.Kept > 0 {
		var err error
		if body, err = w.Memory.ReceiptBody(f); err != nil {
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
func (w Writer) conflict(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	c := &effect.Conflict{Key: key}
	if f.Input.Kept == 0 || s.Input.Data == nil {
		return c
	}
	if stored, err := w.Memory.Input(f); err == nil {
		c.Fields = flight.DifferingFields(stored, s.Input.Data, nil)
	}
	return c
}

// Input is what must be sent: the first caller's input, which a later caller's need not equal to the letter.
func (w Writer) Input(s *flight.Submission, f *flight.Flight) (flight.Blob, error) {
	b := f.Input
	switch {
	case b.Kept == 0:
		return b, nil
	case b.Digest == s.Input.Digest && s.Input.Data != nil:
		return s.Input, nil
	}
	data, err := w.Memory.Input(f)
	b.Data = data
	return b, err
}

// IdempotencyKey is what the provider sees: the same for every attempt of a generation.
func (w Writer) IdempotencyKey(f *flight.Flight) string {
	header := w.Memory.Header()
	return header.IdempotencyKey(f.Key, f.Generation)
}

// SealToken writes the fencing token of an attempt for the wire.
func (w Writer) SealToken(f *flight.Flight, a *flight.Attempt) string {
	header := w.Memory.Header()
	return header.TokenOf(a).Seal(header.Secret, f.ID, f.Generation, a.Session.ID)
}

// Previous is a copy of the attempt before the newest one; nil when there is none.
func Previous(f *flight.Flight) *flight.Attempt {
	if len(f.Attempts) < 2 {
		return nil
	}
	before := f.Attempts[len(f.Attempts)-2]
	return &before
}

// Unavailable gives an error of etcd's side or of the ledger the class that callers know.
func Unavailable(key flight.Key, err error) error {
	switch {
	case errors.Is(err, lease.ErrClosed), errors.Is(err, effect.ErrClosed):
		return effect.ErrClosed
	case errors.Is(err, lease.ErrUnavailable), errors.Is(err, lease.ErrRegressed), errors.Is(err, lease.ErrForeign), errors.Is(err, lease.ErrLost):
		return &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", key, err)}
	}
	return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: %w", key, err)}
}
