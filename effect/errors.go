package effect

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// refusedError and notDoneError mark a handler's error with its outcome.
type (
	refusedError struct {
		err      error
		answered bool // as in notDoneError
	}
	notDoneError struct {
		err      error
		answered bool // from the answer to one request; it says nothing about other requests
	}
)

// Refused marks an error as a final rejection by the provider: the effect did not happen and never will. It ends the
// flight.
func Refused(err error) error { return &refusedError{err: err} }

// NotDone marks an error after which the effect certainly did not happen this time.
func NotDone(err error) error { return &notDoneError{err: err} }

func (e *refusedError) Error() string { return textOf(e.err, "refused") }
func (e *refusedError) Unwrap() error { return e.err }
func (e *notDoneError) Error() string { return textOf(e.err, "not done") }
func (e *notDoneError) Unwrap() error { return e.err }

// textOf returns the text of err; class when err is nil.
func textOf(err error, class string) string {
	if err == nil {
		return class
	}
	return err.Error()
}

// notSentError means that this package rejected a send. It says nothing about earlier sends.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// Classify returns the outcome that a handler's error means; the package comment has the table. It ends the attempt:
// later sends fail, because they would make the outcome wrong.
func Classify(err error, at *Attempt) flight.Outcome {
	var refused *refusedError
	var notDone *notDoneError
	sent := at.markOver()
	switch {
	case errors.As(err, new(*notSentError)) && sent:
		return flight.OutcomeUnknown
	case err == nil:
		return flight.OutcomeSucceeded
	case errors.As(err, &refused) && refused.answered && at.hasOtherSends():
		return flight.OutcomeUnknown
	case errors.As(err, &refused):
		return flight.OutcomeRefused
	case errors.As(err, &notDone) && notDone.answered && at.hasOtherSends():
		return flight.OutcomeUnknown
	case errors.As(err, &notDone) && !isOfAnotherFlight(err, notDone):
		return flight.OutcomeNotDone
	case !sent:
		return flight.OutcomeNotDone
	}
	return flight.OutcomeUnknown
}

// isOfAnotherFlight reports whether the NotDone is that of another flight which this handler ran. It says nothing about
// the sends of this handler.
func isOfAnotherFlight(err error, word *notDoneError) bool {
	var inner *Unsettled
	var its *notDoneError
	return errors.As(err, &inner) && errors.As(inner.Err, &its) && its == word
}

// Declined means that the flight has ended with a rejection by the provider. Result has the receipt. A repeat returns
// the same error; to try again, use a new id.
type Declined struct {
	Result Result
}

func (e *Declined) Error() string {
	return fmt.Sprintf("%s was refused by the provider: %s", e.Result.Key, e.Result.Answer.Body)
}

// Failed means that the flight ended without a receipt: its retries are exhausted, or it was cancelled. `flightd
// flights retry` makes it ready again.
type Failed struct {
	Key      flight.Key
	State    flight.State // failed or cancelled
	Cause    string
	Redacted bool // its input was erased: it cannot be retried
}

func (e *Failed) Error() string { return fmt.Sprintf("%s is %s: %s", e.Key, e.State, e.Cause) }

// InDoubt means that the effect may have happened. No attempt starts until a person resolves the flight.
type InDoubt struct {
	Key     flight.Key
	Version flight.Version
	Cause   string
	// Proposed means that an open was proposed for this answer. Otherwise the answer is from a node's own view, and a copy
	// of the request may still open an attempt.
	Proposed bool
}

func (e *InDoubt) Error() string {
	return fmt.Sprintf("%s is in doubt: %s; settle it with `flightd doubt resolve %s --reason WHY --happened --receipt @FILE | --did-not-happen | --fail`; "+
		"next time, recovery resend avoids this where the provider honours the idempotency key, and verify where it can be asked",
		e.Key, e.Cause, e.Key)
}

// Conflict means that the key was first used with another input. Nothing was run. A repeat returns the same error.
type Conflict struct {
	Key    flight.Key
	Fields []string // JSON pointers to the differences, if both inputs are JSON
}

func (e *Conflict) Error() string {
	which := ""
	if len(e.Fields) > 0 {
		which = fmt.Sprintf(" (fields that differ: %v)", e.Fields)
	}
	return fmt.Sprintf("%s was first used with another input%s; if the fields that differ are generated, leave them out of the fingerprint; if the intent differs, use another id", e.Key, which)
}

// Busy means that another caller's attempt did not end within the wait. Calling again is safe.
type Busy struct {
	Key        flight.Key
	State      flight.State
	RetryAfter time.Duration
	Proposed   bool // as in InDoubt
}

func (e *Busy) Error() string { return fmt.Sprintf("%s is %s elsewhere; ask again", e.Key, e.State) }

// Unapproved means that the effect may not start before a person has approved it.
type Unapproved struct {
	Key flight.Key
}

func (e *Unapproved) Error() string { return fmt.Sprintf("%s waits for an approval", e.Key) }

// Expired means that the flight has ended, and its receipt is deleted after its retention. The effect is not run again.
type Expired struct {
	Key     flight.Key
	Outcome flight.State
	Digest  flight.Digest
}

func (e *Expired) Error() string {
	return fmt.Sprintf("%s ended as %s; its receipt is no longer kept", e.Key, e.Outcome)
}

// OpenExpired means that an open arrived after its not_after, or that its not_after is too far in the future. It has
// opened nothing. Use a new nonce, and a not_after counted from LedgerTime.
type OpenExpired struct {
	Key        flight.Key
	LedgerTime flight.Time
}

func (e *OpenExpired) Error() string {
	return fmt.Sprintf("%s: the open has expired; the ledger's time is %s", e.Key, e.LedgerTime.AsTime().Format(time.RFC3339))
}

// TooMany means that a limit on unreported attempts, or on nonces, is reached. Nothing was opened. Report or abandon
// earlier attempts first.
type TooMany struct {
	Key        flight.Key
	Limit      string
	RetryAfter time.Duration
}

func (e *TooMany) Error() string { return fmt.Sprintf("%s: %s", e.Key, e.Limit) }

// QuotaExceeded means that the namespace of the key stores as much as its limits allow. Nothing was opened. Flights leave
// the store at the end of their retention; an operator can raise the limit.
type QuotaExceeded struct {
	Key        flight.Key
	Limit      string
	RetryAfter time.Duration
}

func (e *QuotaExceeded) Error() string { return fmt.Sprintf("%s: %s", e.Key, e.Limit) }

// SessionInUse means that a session was not closed, because attempts under it are neither reported nor abandoned.
type SessionInUse struct {
	Session flight.SessionID
	Open    int
}

func (e *SessionInUse) Error() string {
	return fmt.Sprintf("session %s has %d open attempts: report or abandon them first", e.Session, e.Open)
}

// Fenced means that the attempt may no longer report: a newer attempt was opened, or its session has ended. The report
// is stored as evidence, unless it says nothing that the ledger does not know.
type Fenced struct {
	Key flight.Key
}

func (e *Fenced) Error() string {
	return fmt.Sprintf("%s: this attempt is over: a newer one was opened, or a person has decided; its report does not count", e.Key)
}

// Unavailable means that flightd cannot decide now: it has no leader or no etcd, is draining, or cannot be reached. No
// effect was started. Calling again is safe.
type Unavailable struct {
	Code  string // such as no_leader, lease_unavailable, draining, unreachable
	Cause error
}

func (e *Unavailable) Error() string { return e.Code + ": " + e.Cause.Error() }
func (e *Unavailable) Unwrap() error { return e.Cause }

// Unrecorded means that the attempt has ended with Result.Outcome, and that the ledger has not stored its report yet.
// Result has the handler's answer.
type Unrecorded struct {
	Result      Result
	Cause       error
	ReportPlace string // where the report is, for people
}

func (e *Unrecorded) Error() string {
	text := fmt.Sprintf("%s ended as %s, which is not recorded yet", e.Result.Key, e.Result.Outcome)
	if e.ReportPlace != "" {
		text += "; " + e.ReportPlace
	}
	return fmt.Sprintf("%s: %v", text, e.Cause)
}
func (e *Unrecorded) Unwrap() error { return e.Cause }

// LeaseLost means that the caller's session has ended: no effect may be started under it. An effect that has started
// may finish, and must be reported.
type LeaseLost struct {
	Key flight.Key // zero when the error is about the session itself
}

func (e *LeaseLost) Error() string {
	if e.Key.IsZero() {
		return "the session is lost"
	}
	return fmt.Sprintf("%s: the session is lost", e.Key)
}

// Unsettled means that the attempt has ended and the flight has not: the effect certainly did not happen this time, or
// a resend is allowed. Call Do again to open the next attempt; no policy of a call does that by itself.
type Unsettled struct {
	Key     flight.Key
	Outcome flight.Outcome // OutcomeNotDone, or OutcomeUnknown under recovery resend
	Err     error          // the handler's error
}

func (e *Unsettled) Error() string { return fmt.Sprintf("%s: %s: %v", e.Key, e.Outcome, e.Err) }
func (e *Unsettled) Unwrap() error { return e.Err }

// Suspended means that the effect was started, and that the attempt waits for its callback. Another call of the key waits for it,
// too, and gets the receipt.
type Suspended struct {
	Key   flight.Key
	Until time.Time // after it the outcome is unknown; zero: the callback has come already
}

func (e *Suspended) Error() string {
	return fmt.Sprintf("%s waits for its callback until %s", e.Key, e.Until.Format(time.RFC3339))
}

// Missing means that there is no such flight: its key was never used, or was freed.
type Missing struct {
	ID flight.ID
}

func (e *Missing) Error() string { return "there is no flight " + e.ID.String() }

// ErrLeaseLost is returned when an effect may no longer start. It is also the cause of the contexts that end for it.
var ErrLeaseLost = errors.New("the lease is lost: the effect must not be started")

// ErrCancelRequested is the cause of a handler's context after a request to cancel its flight.
var ErrCancelRequested = errors.New("cancellation was requested")

// ErrClosed is returned by a Doer that was closed.
var ErrClosed = errors.New("closed")

// The classes of a ledger's errors. After any other error the command was not applied, and will not be.
var (
	// ErrAmbiguous: the command may or may not have been applied. Proposing it again is harmless, and tells.
	ErrAmbiguous error = &Unavailable{Code: "no_leader", Cause: errors.New("the ledger may or may not have applied the command")}
	// ErrPending: the report is stored on disk and will be committed.
	ErrPending = errors.New("the report is stored on disk and will be committed later")
)
