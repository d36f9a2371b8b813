package client

import (
	"errors"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// The errors of package effect under the names of this package.
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
	Missing     = effect.Missing
	LeaseLost   = effect.LeaseLost
	OpenExpired = effect.OpenExpired
)

// ErrClosed is returned by a Client that was closed.
var ErrClosed = effect.ErrClosed

// The problem documents of the server and their codes.
type (
	Problem    = wire.Problem
	Code       = wire.Code
	FieldError = wire.FieldError
)

// Error is a server's no, as it was written. errors.As finds it, and, where the code has one, the error of package
// effect inside it: *InDoubt, *Conflict, *Busy and so on.
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
		if said := bad.Error(); said != p.Detail { // a problem with one mistake has it as its detail
			text += "; " + said
		}
	}
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.class }

// CodeOf gives the server's code for an error of a Client; empty where no server said it.
func CodeOf(err error) Code {
	if p := problemOf(err); p != nil {
		return p.Code
	}
	return ""
}

// problem gives a problem the class that callers branch on. key is the one that was asked for, where that is known.
func problem(p Problem, key flight.Key) *Error {
	if key.IsZero() {
		key, _ = flight.ParseKey(p.Key)
	}
	e := &Error{Problem: p}
	switch p.Code {
	case wire.InDoubt:
		version, _ := flight.ParseVersion(p.Version)
		e.class = &effect.InDoubt{Key: key, Version: version, Cause: p.Detail, Proposed: p.Proposed != nil && *p.Proposed}
	case wire.Conflict:
		c := &effect.Conflict{Key: key}
		for _, f := range p.Errors {
			c.Fields = append(c.Fields, strings.TrimPrefix(f.Pointer, "/input")) // a pointer into the request, made one into its input
		}
		e.class = c
	case wire.InFlight:
		state, err := flight.ParseState(p.State)
		if err != nil {
			state = flight.Running
		}
		e.class = &effect.Busy{Key: key, State: state, RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond,
			Proposed: p.Proposed == nil || *p.Proposed}
	case wire.OpenExpired:
		e.class = &effect.OpenExpired{Key: key, LedgerTime: flight.Time(p.LedgerTime)}
	case wire.ApprovalPending:
		e.class = &effect.Unapproved{Key: key}
	case wire.Expired:
		if key.IsZero() && p.FlightID == "" {
			break // a place in the feed, and no flight
		}
		was, _ := flight.ParseState(p.Outcome)
		digest, _ := wire.ParseDigest(p.Digest)
		e.class = &effect.Expired{Key: key, Outcome: was, Digest: digest}
	case wire.Fenced:
		e.class = &effect.Fenced{Key: key}
	case wire.NotFound:
		if id, err := flight.ParseID(p.FlightID); err == nil {
			e.class = &effect.Missing{ID: id}
		}
	case wire.NoLeader, wire.LeaseUnavailable, wire.Draining, wire.ReportPending, wire.RateLimited, wire.TooManyOpen:
		e.class = &effect.Unavailable{Code: string(p.Code), Cause: errors.New(p.Detail)}
	case wire.LeaseLost:
		e.class = &effect.LeaseLost{Key: key}
	}
	return e
}

// about is the id of the flight that a problem is about; "" where it names none.
func about(p *Problem) string {
	if p.Flight != nil {
		return p.Flight.ID
	}
	return p.FlightID
}
