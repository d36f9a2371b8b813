// Package answer converts flights, and the errors of etcd and of the ledger, into results and errors of package
// effect. The executor and the service for remote callers share it.
package answer

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// RetryAfter is the time after which a caller should retry a busy key.
const RetryAfter = time.Second

// Reader reads the ledger.
type Reader interface {
	Header() flight.Header
	// Input returns the exact bytes of the flight's input.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody returns the exact stored bytes of the receipt's body.
	ReceiptBody(f *flight.Flight) ([]byte, error)
}

// Builder builds answers from one ledger.
type Builder struct{ Reader Reader }

// CodeReconciling is the code of effect.Unavailable while a restored ledger opens nothing.
const CodeReconciling = "reconciling"

// Reconciling is the error of an open while the ledger is restored and no operator has finished that.
func Reconciling(key flight.Key) error {
	return &effect.Unavailable{Code: CodeReconciling, Cause: fmt.Errorf("%s: the ledger was restored, and nothing opens before an operator has finished the restore", key)}
}

// IsFinal reports whether only a person can change the answer to the callers of a flight.
func IsFinal(f *flight.Flight) bool {
	return f != nil && (f.State.Terminal() || f.State == flight.StateInDoubt || f.State == flight.StateAwaitingApproval)
}

// HasOtherInput reports whether the flight was opened with another input than this submission's.
func HasOtherInput(f *flight.Flight, s *flight.Submission) bool {
	return f != nil && f.State != flight.StateAbsent && !f.Fingerprint.Matches(s.Fingerprint)
}

// Final returns nil if the flight has a receipt for this submission, else the error about its state.
func (bu Builder) Final(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	if f == nil {
		return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: the ledger returned no flight", key)}
	}
	if HasOtherInput(f, s) {
		return bu.conflict(f, key, s)
	}
	switch f.State {
	case flight.StateExpired: // a tombstone does not have its key
		expired := &effect.Expired{Key: key, Outcome: f.FinalState}
		if f.Receipt != nil {
			expired.Digest = f.Receipt.Body.Digest
		}
		return expired
	case flight.StateInDoubt:
		return &effect.InDoubt{Key: key, Version: f.Version, Cause: f.Cause}
	case flight.StateAwaitingApproval:
		return &effect.Unapproved{Key: key}
	case flight.StateSucceeded, flight.StateFailed, flight.StateCancelled:
		if f.Receipt == nil {
			return &effect.Failed{Key: key, State: f.State, Cause: f.Cause, Redacted: f.Redacted != nil}
		}
		return nil
	}
	return &effect.Busy{Key: key, State: f.State, RetryAfter: RetryAfter}
}

// Receipt returns the result of a flight that has a receipt. body is the stored part of the receipt's body; if it is
// nil, it is read from the ledger.
func (bu Builder) Receipt(f *flight.Flight, body []byte, source effect.Source) (effect.Result, error) {
	r := f.Receipt
	if body == nil && r.Body.StoredSize > 0 {
		var err error
		if body, err = bu.Reader.ReceiptBody(f); err != nil {
			return effect.Result{}, &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("read the receipt of %s: %w", f.Key, err)}
		}
	}
	result := effect.Result{
		Key: f.Key, FlightID: f.ID, Outcome: r.Outcome, Source: source, Attempt: r.Attempt,
		Answer: effect.Answer{ExternalID: r.ExternalID, ContentType: r.Body.ContentType, Body: body},
		Digest: r.Body.Digest, Size: r.Body.Size, Truncated: r.Truncated(), At: r.At.AsTime(),
	}
	if r.Outcome == flight.OutcomeRefused {
		return result, &effect.Declined{Result: result}
	}
	return result, nil
}

// conflict returns the error about another input, with the fields that differ if both inputs are available.
func (bu Builder) conflict(f *flight.Flight, key flight.Key, s *flight.Submission) error {
	c := &effect.Conflict{Key: key}
	if f.Input.StoredSize == 0 || s.Input.Data == nil {
		return c
	}
	if stored, err := bu.Reader.Input(f); err == nil {
		c.Fields = flight.DifferingFields(stored, s.Input.Data, nil)
	}
	return c
}

// Input returns the input to send: the first caller's bytes. A later caller's bytes may differ in spelling.
func (bu Builder) Input(s *flight.Submission, f *flight.Flight) (flight.Blob, error) {
	b := f.Input
	switch {
	case b.StoredSize == 0:
		return b, nil
	case b.Digest == s.Input.Digest && s.Input.Data != nil:
		return s.Input, nil
	}
	data, err := bu.Reader.Input(f)
	b.Data = data
	return b, err
}

// IdempotencyKey returns the key for the provider: the same for every attempt of a generation.
func (bu Builder) IdempotencyKey(f *flight.Flight) string {
	header := bu.Reader.Header()
	return header.IdempotencyKey(f.Key, f.Generation)
}

// SealToken returns the fencing token of an attempt for the wire.
func (bu Builder) SealToken(f *flight.Flight, a *flight.Attempt) string {
	header := bu.Reader.Header()
	return header.TokenOf(a).Seal(header.Secret, f.ID, f.Generation, a.Session.ID)
}

// PreviousAttempt returns a copy of the attempt before the newest one, or nil.
func PreviousAttempt(f *flight.Flight) *flight.Attempt {
	if len(f.Attempts) < 2 {
		return nil
	}
	before := f.Attempts[len(f.Attempts)-2]
	return &before
}

// Unavailable wraps an error of a lease or of the ledger in the error class of package effect.
func Unavailable(key flight.Key, err error) error {
	switch {
	case errors.Is(err, lease.ErrClosed), errors.Is(err, effect.ErrClosed):
		return effect.ErrClosed
	case errors.Is(err, lease.ErrUnavailable), errors.Is(err, lease.ErrRegressed), errors.Is(err, lease.ErrForeign), errors.Is(err, lease.ErrLost):
		return &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", key, err)}
	}
	return &effect.Unavailable{Code: "no_leader", Cause: fmt.Errorf("%s: %w", key, err)}
}
