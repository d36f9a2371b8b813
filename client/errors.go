package client

import (
	"errors"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// The errors of package effect.
type (
	InDoubt     = effect.InDoubt
	Conflict    = effect.Conflict
	Busy        = effect.Busy
	Unapproved  = effect.Unapproved
	Expired     = effect.Expired
	Fenced      = effect.Fenced
	Failed      = effect.Failed
	Declined    = effect.Declined
	Unavailable = effect.Unavailable
	Unrecorded  = effect.Unrecorded
	Unsettled   = effect.Unsettled
	Suspended   = effect.Suspended
	Missing     = effect.Missing
	LeaseLost   = effect.LeaseLost
	OpenExpired = effect.OpenExpired
)

// ErrClosed is returned by a Client that was closed.
var ErrClosed = effect.ErrClosed

// Problem documents of the server, and their codes.
type (
	Problem    = wire.Problem
	Code       = wire.Code
	FieldError = wire.FieldError
)

// Error is a problem document of the server. For codes with an error of package effect, such as *InDoubt, *Conflict or
// *Busy, it wraps that error.
type Error struct {
	Problem Problem
	class   error
}

func (e *Error) Error() string {
	if e.class != nil {
		return e.class.Error()
	}
	p := &e.Problem
	text := string(p.Code)
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	for _, f := range p.Errors {
		bad := wire.Invalid{FieldError: f}
		if mistake := bad.Error(); mistake != p.Detail { // a single mistake is the detail already
			text += "; " + mistake
		}
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.class }

// CodeOf returns the code of the server's problem document in err, or "" if err has none.
func CodeOf(err error) Code {
	if p := problemOf(err); p != nil {
		return p.Code
	}
	return ""
}

// newError makes the *Error of a problem document, with the error of package effect for its code. key is that of the
// request, or zero.
func newError(p Problem, key flight.Key) *Error {
	if key.IsZero() {
		key, _ = flight.ParseStoredKey(p.Key)
	}
	e := &Error{Problem: p}
	switch p.Code {
	case wire.InDoubt:
		version, _ := flight.ParseVersion(p.Version)
		e.class = &effect.InDoubt{Key: key, Version: version, Cause: p.Detail, Proposed: p.Proposed != nil && *p.Proposed}
	case wire.Conflict:
		c := &effect.Conflict{Key: key}
		for _, f := range p.Errors {
			c.Fields = append(c.Fields, strings.TrimPrefix(f.Pointer, "/input")) // the pointer is into the request; make it one into the input
		}
		e.class = c
	case wire.InFlight:
		state, err := flight.ParseState(p.State)
		if err != nil {
			state = flight.StateRunning
		}
		e.class = &effect.Busy{Key: key, State: state, RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond,
			Proposed: p.Proposed == nil || *p.Proposed}
	case wire.OpenExpired:
		e.class = &effect.OpenExpired{Key: key, LedgerTime: flight.Time(p.LedgerTime)}
	case wire.ApprovalPending:
		e.class = &effect.Unapproved{Key: key}
	case wire.Expired:
		if key.IsZero() && p.FlightID == "" {
			break // an event id, and no flight
		}
		outcome, _ := flight.ParseState(p.Outcome)
		digest, _ := wire.ParseDigest(p.Digest)
		e.class = &effect.Expired{Key: key, Outcome: outcome, Digest: digest}
	case wire.Fenced:
		e.class = &effect.Fenced{Key: key}
	case wire.NotFound:
		if id, err := flight.ParseID(p.FlightID); err == nil {
			e.class = &effect.Missing{ID: id}
		}
	case wire.NoLeader, wire.LeaderLost, wire.LedgerBehind, wire.LeaseUnavailable, wire.Draining, wire.ReportPending, wire.Reconciling, wire.RateLimited, wire.TooManyOpen, wire.QuotaExceeded:
		e.class = &effect.Unavailable{Code: string(p.Code), Cause: errors.New(p.Detail)}
	case wire.LeaseLost:
		e.class = &effect.LeaseLost{Key: key}
	}
	return e
}

// flightIDOf returns the id of the flight that a problem names, or "" if it names no flight.
func flightIDOf(p *Problem) string {
	if p.Flight != nil {
		return p.Flight.ID
	}
	return p.FlightID
}
