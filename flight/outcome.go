package flight

import "slices"

// wordOf returns the word of a value.
func wordOf[T ~uint8](words []string, v T) string {
	if int(v) < len(words) {
		return words[v]
	}
	return "invalid"
}

// Outcome is the end of an attempt. An error does not prove that nothing happened, so the type has a value for each case.
type Outcome uint8

// The four outcomes. The zero Outcome means that the attempt has not ended.
const (
	OutcomeNone Outcome = iota
	// OutcomeSucceeded: the effect happened.
	OutcomeSucceeded
	// OutcomeRefused: the effect did not happen and never will.
	OutcomeRefused
	// OutcomeNotDone: the effect surely did not happen in this attempt.
	OutcomeNotDone
	// OutcomeUnknown: the effect may have happened.
	OutcomeUnknown
)

var outcomeNames = [...]string{"", "succeeded", "refused", "not_done", "unknown"}

// String returns the word of the API: succeeded, refused, not_done or unknown.
func (o Outcome) String() string { return wordOf(outcomeNames[:], o) }

// ParseOutcome parses one of the four words. Errors are *InvalidError.
func ParseOutcome(s string) (Outcome, error) {
	if i := slices.Index(outcomeNames[:], s); i > 0 {
		return Outcome(i), nil
	}
	return OutcomeNone, &InvalidError{Field: "outcome", Detail: "an outcome is succeeded, refused, not_done or unknown"}
}

// Final reports whether an attempt with this outcome leaves a receipt.
func (o Outcome) Final() bool { return o == OutcomeSucceeded || o == OutcomeRefused }

// HTTPOutcome classifies the status of an HTTP response that was read to its end, by the table of docs/guarantees.md. A
// status that rejects the caller, the address or the moment is OutcomeNotDone. A status that may hide an effect is
// OutcomeUnknown. A redirect is OutcomeUnknown as well, because a provider that acted may answer 303, except for a safe
// request (GET, HEAD, OPTIONS, TRACE), which is OutcomeNotDone.
func HTTPOutcome(status int, safe bool) Outcome {
	switch {
	case status >= 200 && status < 300:
		return OutcomeSucceeded
	case status >= 300 && status < 400 && safe:
		return OutcomeNotDone
	}
	switch status {
	case 400, 402, 405, 406, 410, 413, 415, 422:
		return OutcomeRefused
	case 401, 403, 404, 407, 421, 425, 426, 429, 431:
		return OutcomeNotDone
	}
	return OutcomeUnknown
}

// State is the state of a flight.
type State uint8

// The states. StateAbsent is a key that was never used, or was freed; its fence stays.
const (
	StateAbsent State = iota
	StateScheduled
	StateReady
	StateAwaitingApproval
	StateRunning
	// StateWaiting is a sleeping saga, or an attempt that waits for a callback; Flight.Wake is set.
	StateWaiting
	StateInDoubt
	StateSucceeded
	StateFailed
	StateCancelled
	// StateExpired is a tombstone.
	StateExpired
)

var stateNames = [...]string{"absent", "scheduled", "ready", "awaiting_approval", "running", "waiting", "in_doubt",
	"succeeded", "failed", "cancelled", "expired"}

// String returns the word of the API.
func (s State) String() string { return wordOf(stateNames[:], s) }

// ParseState parses a state word of the API. Errors are *InvalidError.
func ParseState(word string) (State, error) {
	if i := slices.Index(stateNames[:], word); i > 0 {
		return State(i), nil
	}
	return StateAbsent, &InvalidError{Field: "state", Detail: "unknown state " + word}
}

// Terminal reports whether the flight is over: only a person's command or the end of its retention changes it.
func (s State) Terminal() bool { return s >= StateSucceeded }

// Recovery selects the reaction to an attempt of unknown outcome.
type Recovery uint8

// The recoveries. RecoveryHold is the zero value, so that a forgotten setting never causes a second effect.
const (
	// RecoveryHold waits for a person.
	RecoveryHold Recovery = iota
	// RecoveryResend opens a new attempt with the same bytes and the same idempotency key.
	RecoveryResend
	// RecoveryVerify asks the provider first.
	RecoveryVerify
)

var recoveryNames = [...]string{"hold", "resend", "verify"}

// String returns the word of the API.
func (r Recovery) String() string { return wordOf(recoveryNames[:], r) }

// ParseRecovery parses hold, resend or verify. Errors are *InvalidError.
func ParseRecovery(word string) (Recovery, error) {
	if i := slices.Index(recoveryNames[:], word); i >= 0 {
		return Recovery(i), nil
	}
	return RecoveryHold, &InvalidError{Field: "recovery", Detail: "a recovery is hold, resend or verify"}
}
