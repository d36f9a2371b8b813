package effect

import (
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// refusedError and notDoneError carry the class that a handler gives its error.
type (
	refusedError struct {
		err      error
		answered bool // as in notDoneError
	}
	notDoneError struct {
		err      error
		answered bool // it is what one request was answered, and says nothing of others
	}
)

// Refused marks an error as the provider's no: the effect did not happen and never will. It ends the flight.
func Refused(err error) error { return &refusedError{err: err} }

// NotDone marks an error as harmless: the effect surely did not happen this time.
func NotDone(err error) error { return &notDoneError{err: err} }

func (e *refusedError) Error() string { return textOf(e.err, "refused") }
func (e *refusedError) Unwrap() error { return e.err }
func (e *notDoneError) Error() string { return textOf(e.err, "not done") }
func (e *notDoneError) Unwrap() error { return e.err }

// textOf is what an error says; class is what is known of one that is nil.
func textOf(err error, class string) string {
	if err == nil {
		return class
	}
	return err.Error()
}

// keptBackError says that this package kept a handler from sending. It says nothing of earlier sends.
type keptBackError struct{ err error }

func (e *keptBackError) Error() string { return e.err.Error() }
func (e *keptBackError) Unwrap() error { return e.err }

// Classify says which outcome a handler's error means; the table stands in the package comment. It ends the attempt:
// what has not left by then is kept back, or the outcome would not be true for long.
func Classify(err error, at *Attempt) flight.Outcome {
	var refused *refusedError
	var notDone *notDoneError
	var keptBack *keptBackError
	sent := at.end()
	switch {
	case errors.As(err, &keptBack) && sent:
		return flight.Unknown
	case err == nil:
		return flight.Succeeded
	case errors.As(err, &refused) && refused.answered && at.others():
		return flight.Unknown
	case errors.As(err, &refused):
		return flight.Refused
	case errors.As(err, &notDone) && notDone.answered && at.others():
		return flight.Unknown
	case errors.As(err, &notDone) && !ofAnother(err, notDone):
		return flight.NotDone
	case !sent:
		return flight.NotDone
	}
	return flight.Unknown
}

// ofAnother reports whether the NotDone is that of another flight, which this one's handler ran: it says nothing of what this
// handler has sent.
func ofAnother(err error, word *notDoneError) bool {
	var inner *Unsettled
	var its *notDoneError
	return errors.As(err, &inner) && errors.As(inner.Err, &its) && its == word
}

// Declined says that the flight is over and the provider's answer was no; Result has the receipt. A repeat gets the
// same; another try is a new intent with an id of its own.
type Declined struct {
	Result Result
}

func (e *Declined) Error() string {
	return fmt.Sprintf("%s was refused by the provider: %s", e.Result.Key, e.Result.Answer.Body)
}

// Failed says that the flight ended without a receipt: its retries are spent, or it was cancelled. A person may let it
// run again with `flightd flights retry`.
type Failed struct {
	Key      flight.Key
	State    flight.State // failed or cancelled
	Cause    string
	Redacted bool // its input was erased: nobody may let it run again
}

func (e *Failed) Error() string { return fmt.Sprintf("%s is %s: %s", e.Key, e.State, e.Cause) }

// InDoubt says that the effect may have happened, and that nobody may act before a person has said so.
type InDoubt struct {
	Key     flight.Key
	Version flight.Version
	Cause   string
	// Proposed says that an open was proposed for this answer. Where it was not, the answer is from a node's own view, and
	// a copy of the request may still open an attempt.
	Proposed bool
}

func (e *InDoubt) Error() string {
	return fmt.Sprintf("%s is in doubt: %s; settle it with `flightd doubt resolve %s --reason WHY --happened --receipt @FILE | --did-not-happen | --fail`; "+
		"next time, recovery resend avoids this where the provider honours the idempotency key, and verify where it can be asked",
		e.Key, e.Cause, e.Key)
}

// Conflict says that the key belongs to another input. Nothing was run; a repeat fails alike.
type Conflict struct {
	Key    flight.Key
	Fields []string // JSON pointers of what differs, where both inputs are JSON
}

func (e *Conflict) Error() string {
	which := ""
	if len(e.Fields) > 0 {
		which = fmt.Sprintf(" (fields that differ: %v)", e.Fields)
	}
	return fmt.Sprintf("%s was first used with another input%s; if the fields that differ are generated, leave them out of the fingerprint; if the intent differs, use another id", e.Key, which)
}

// Busy says that somebody else is at it, and that the wait was over before they were. Asking again is safe.
type Busy struct {
	Key        flight.Key
	State      flight.State
	RetryAfter time.Duration
	Proposed   bool // as of InDoubt
}

func (e *Busy) Error() string { return fmt.Sprintf("%s is %s elsewhere; ask again", e.Key, e.State) }

// Unapproved says that no effect may start before a person has approved it.
type Unapproved struct {
	Key flight.Key
}

func (e *Unapproved) Error() string { return fmt.Sprintf("%s waits for an approval", e.Key) }

// Expired says that the flight is over and its receipt's retention, too: the effect is not run again.
type Expired struct {
	Key     flight.Key
	Outcome flight.State
	Digest  flight.Digest
}

func (e *Expired) Error() string {
	return fmt.Sprintf("%s ended as %s; its receipt is no longer kept", e.Key, e.Outcome)
}

// OpenExpired says that an open came after its not_after, or names one too far ahead: it has opened nothing. Take a new
// nonce, and a not_after that counts from LedgerTime.
type OpenExpired struct {
	Key        flight.Key
	LedgerTime flight.Time
}

func (e *OpenExpired) Error() string {
	return fmt.Sprintf("%s: the open has expired; the ledger's time is %s", e.Key, e.LedgerTime.At().Format(time.RFC3339))
}

// TooMany says that a bound on opens without a report, or on nonces, is reached. Nothing was opened; what was opened before
// must be reported or abandoned first.
type TooMany struct {
	Key        flight.Key
	What       string
	RetryAfter time.Duration
}

func (e *TooMany) Error() string { return fmt.Sprintf("%s: %s", e.Key, e.What) }

// SessionInUse says that a session is not closed, because attempts under it were neither reported nor abandoned.
type SessionInUse struct {
	Session flight.SessionID
	Open    int
}

func (e *SessionInUse) Error() string {
	return fmt.Sprintf("session %s has %d open attempts: report or abandon them first", e.Session, e.Open)
}

// Fenced says that the caller's right is over: a newer attempt was opened, or its session is gone. What it reported is
// kept as evidence.
type Fenced struct {
	Key flight.Key
}

func (e *Fenced) Error() string {
	return fmt.Sprintf("%s: this attempt is over, a newer one or a decision has taken its place; the report is kept as evidence", e.Key)
}

// Unavailable says that flightd cannot decide now: no leader, no etcd, draining. No effect was started; asking again
// is safe.
type Unavailable struct {
	Code  string // no_leader, lease_unavailable, draining
	Cause error
}

func (e *Unavailable) Error() string { return e.Code + ": " + e.Cause.Error() }
func (e *Unavailable) Unwrap() error { return e.Cause }

// Unrecorded says that the attempt has ended as Result.Outcome says, and that the ledger does not have that yet. Result has
// what the handler returned.
type Unrecorded struct {
	Result Result
	Cause  error
	Where  string // what has become of the report, for people
}

func (e *Unrecorded) Error() string {
	text := fmt.Sprintf("%s ended as %s, which is not recorded yet", e.Result.Key, e.Result.Outcome)
	if e.Where != "" {
		text += "; " + e.Where
	}
	return fmt.Sprintf("%s: %v", text, e.Cause)
}
func (e *Unrecorded) Unwrap() error { return e.Cause }

// LeaseLost says that the caller's session is gone: no effect may be started under it. What was started may finish and
// is to be reported.
type LeaseLost struct {
	Key flight.Key // zero where it is about the session as such
}

func (e *LeaseLost) Error() string {
	if e.Key.IsZero() {
		return "the session is lost"
	}
	return fmt.Sprintf("%s: the session is lost", e.Key)
}

// Unsettled says that the attempt ended without ending the flight: the effect surely did not happen this time, or a
// resend is allowed. Calling Do again opens the next attempt; no policy of the call's does it by itself.
type Unsettled struct {
	Key     flight.Key
	Outcome flight.Outcome // NotDone, or Unknown under recovery resend
	Err     error          // what the handler returned
}

func (e *Unsettled) Error() string { return fmt.Sprintf("%s: %s: %v", e.Key, e.Outcome, e.Err) }
func (e *Unsettled) Unwrap() error { return e.Err }

// Missing says that there is no such flight: its key was never used, or was freed.
type Missing struct {
	ID flight.ID
}

func (e *Missing) Error() string { return "there is no flight " + e.ID.String() }

// ErrLeaseLost is the cause with which an effect may not be started any more.
var ErrLeaseLost = errors.New("the lease is lost: the effect must not be started")

// ErrClosed is returned by a Doer that was closed.
var ErrClosed = errors.New("closed")
