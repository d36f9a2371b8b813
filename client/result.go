package client

import (
	"fmt"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// isDecided reports whether only a person can change the result of the flight.
func isDecided(f *Flight) bool {
	state, err := flight.ParseState(f.State)
	return err == nil && (state.Terminal() || state == flight.StateInDoubt || state == flight.StateAwaitingApproval)
}

// resultOf returns the result or the error that callers of a flight get.
func resultOf(f *Flight) (effect.Result, error) {
	if f == nil {
		return effect.Result{}, fmt.Errorf("client: the server's answer has no flight")
	}
	key, err := flight.ParseStoredKey(f.Key)
	if err != nil && f.Key != "" {
		return effect.Result{}, fmt.Errorf("client: the server's answer has no valid key: %w", err)
	}
	state, err := flight.ParseState(f.State)
	if err != nil {
		return effect.Result{}, fmt.Errorf("client: the server's answer has no valid state: %w", err)
	}
	version, _ := flight.ParseVersion(f.Version)
	switch state {
	case flight.StateExpired:
		return effect.Result{}, &effect.Expired{Key: key}
	case flight.StateInDoubt:
		return effect.Result{}, &effect.InDoubt{Key: key, Version: version, Cause: f.Cause}
	case flight.StateAwaitingApproval:
		return effect.Result{}, &effect.Unapproved{Key: key}
	case flight.StateSucceeded, flight.StateFailed, flight.StateCancelled:
		if f.Receipt == nil {
			return effect.Result{}, &effect.Failed{Key: key, State: state, Cause: f.Cause, Redacted: f.Redacted != nil}
		}
	default:
		return effect.Result{}, &effect.Busy{Key: key, State: state}
	}
	r := f.Receipt
	outcome, err := flight.ParseOutcome(r.Outcome)
	if err != nil {
		return effect.Result{}, fmt.Errorf("client: the server's answer has no valid outcome: %w", err)
	}
	digest, _ := wire.ParseDigest(r.Digest)
	body := []byte(r.Body)
	if r.Body == nil {
		body = r.BodyBase64
	}
	source := effect.SourceReplayed
	for s := effect.SourceExecuted; s < effect.SourceReplayed; s++ {
		if s.String() == f.Source {
			source = s
		}
	}
	result := effect.Result{
		Key: key, FlightID: key.FlightID(), Outcome: outcome, Source: source, Attempt: r.Attempt,
		Answer: effect.Answer{ExternalID: r.ExternalID, ContentType: r.ContentType, Body: body},
		Digest: digest, Size: r.Size, Truncated: r.Truncated, At: r.At.Time,
	}
	if outcome == flight.OutcomeRefused {
		return result, &effect.Declined{Result: result}
	}
	return result, nil
}
