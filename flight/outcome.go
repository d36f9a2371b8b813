package flight

// Outcome is how an attempt ended. An error does not say that nothing happened, so the type carries the difference.
type Outcome uint8

// The four outcomes. The zero Outcome means that the attempt has not ended.
const (
	NoOutcome Outcome = iota
	// Succeeded: the effect happened.
	Succeeded
	// Refused: it did not happen and never will.
	Refused
	// NotDone: it surely did not happen this time.
	NotDone
	// Unknown: it may have happened.
	Unknown
)

var outcomeNames = [...]string{"", "succeeded", "refused", "not_done", "unknown"}

// String gives the word of the API: succeeded, refused, not_done or unknown.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "invalid"
}

// ParseOutcome reads one of the four words. Errors are *InvalidError.
func ParseOutcome(s string) (Outcome, error) {
	for o := Succeeded; o <= Unknown; o++ {
		if s == outcomeNames[o] {
			return o, nil
		}
	}
	return NoOutcome, &InvalidError{Field: "outcome", Detail: "an outcome is succeeded, refused, not_done or unknown"}
}

// Final reports whether an attempt that ended so leaves a receipt.
func (o Outcome) Final() bool { return o == Succeeded || o == Refused }

// HTTPOutcome classifies the status of an HTTP answer that was read whole, by the table of docs/guarantees.md. An answer
// that says "not now, not you, not here" is NotDone. One that may hide an effect is Unknown: a redirect, too, unless the
// request was safe (GET, HEAD, OPTIONS, TRACE), because a provider that acted may answer 303.
func HTTPOutcome(status int, safe bool) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Succeeded
	case status >= 300 && status < 400 && safe:
		return NotDone
	}
	switch status {
	case 400, 402, 405, 406, 410, 413, 415, 422:
		return Refused
	case 401, 403, 404, 407, 421, 425, 426, 429, 431:
		return NotDone
	}
	return Unknown
}

// State is the state of a flight.
type State uint8

// The states. Absent is a key that was never used, or was freed; its fence stays.
const (
	Absent State = iota
	Scheduled
	Queued
	AwaitingApproval
	Running
	// Waiting is a saga asleep, or an attempt that waits for a callback: what wakes it is recorded.
	Waiting
	InDoubt
	StateSucceeded
	StateFailed
	StateCancelled
	// Expired is a tombstone.
	Expired
)

var stateNames = [...]string{"absent", "scheduled", "queued", "awaiting_approval", "running", "waiting", "in_doubt",
	"succeeded", "failed", "cancelled", "expired"}

// String gives the word of the API.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "invalid"
}

// ParseState reads one of the words of the API. Errors are *InvalidError.
func ParseState(word string) (State, error) {
	for i, name := range stateNames {
		if i > 0 && name == word {
			return State(i), nil
		}
	}
	return Absent, &InvalidError{Field: "state", Detail: "no state is called " + word}
}

// Terminal reports whether nothing will happen to the flight by itself any more.
func (s State) Terminal() bool { return s >= StateSucceeded }

// Recovery is what to do about an attempt of unknown outcome.
type Recovery uint8

// The recoveries. Hold is the zero value: never a second effect by accident.
const (
	// Hold waits for a person.
	Hold Recovery = iota
	// Resend opens a new attempt with the same bytes and the same idempotency key.
	Resend
	// Verify asks the provider first.
	Verify
)

var recoveryNames = [...]string{"hold", "resend", "verify"}

// String gives the word of the API.
func (r Recovery) String() string {
	if int(r) < len(recoveryNames) {
		return recoveryNames[r]
	}
	return "invalid"
}

// ParseRecovery reads hold, resend or verify. Errors are *InvalidError.
func ParseRecovery(word string) (Recovery, error) {
	for i, name := range recoveryNames {
		if name == word {
			return Recovery(i), nil
		}
	}
	return Hold, &InvalidError{Field: "recovery", Detail: "a recovery is hold, resend or verify"}
}
