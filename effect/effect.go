package effect

import (
	"context"
	"encoding/json"
	"time"

	"github.com/flightd/flightd/flight"
)

// Call is what a caller wants to happen once.
type Call struct {
	Key        flight.Key
	Submission flight.Submission
	// LookUp asks the provider what happened. It is needed under recovery verify, and wherever Policy.Lookup is set.
	LookUp LookUp
	// Wait bounds how long to wait for a flight of somebody else; 0 waits as long as the caller's context lives.
	Wait time.Duration
}

// Handler performs the effect. Its context is the attempt's and not the caller's: it ends by the attempt's time-out,
// by a cancel, by Close, and by loss of the lease only under recovery verify. It must end soon after its context. A Do of its
// own key, which would wait for itself, is refused with *flight.InvalidError.
// What the error means is told by Classify.
type Handler func(ctx context.Context, at *Attempt) (Answer, error)

// LookUp asks the provider whether an effect happened: it returns flight.Happened with the provider's answer,
// flight.DidNotHappen, or flight.NoVerb when it could not find out. An error counts as NoVerb. The attempt that it gets is the
// one in doubt, by its number and idempotency key; its FencingToken is empty through a client.
type LookUp func(ctx context.Context, at *Attempt) (flight.Verb, Answer, error)

// Answer is what an effect left behind: the external object's id and the body that every duplicate will get.
type Answer struct {
	ExternalID  string // at most flight.MaxText bytes of it are kept: longer ones belong in the body
	ContentType string
	Body        []byte
}

// JSON is the answer with v as its body.
func JSON(externalID string, v any) (Answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Answer{}, err
	}
	return Answer{ExternalID: externalID, ContentType: "application/json", Body: body}, nil
}

// Source says how a caller came by its result.
type Source uint8

// The sources.
const (
	Executed Source = iota // this call ran the effect
	Joined                 // it waited for one that was running already
	Replayed               // it was stored
)

var sourceNames = [...]string{"executed", "joined", "replayed"}

// String gives the word of the API.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "invalid"
}

// Result is how a flight ended, with a receipt: Outcome is Succeeded or Refused.
type Result struct {
	Key       flight.Key
	FlightID  flight.ID
	Outcome   flight.Outcome
	Source    Source
	Attempt   uint32 // the attempt that the receipt names
	Answer    Answer
	Digest    flight.Digest // over the whole body, also when it was shortened
	Size      int           // full length of the body in bytes
	Truncated bool          // Answer.Body is only its beginning
	At        time.Time     // when the receipt was stored
}

// Doer makes effects happen once. The executor and the HTTP client both are one.
type Doer interface {
	// Do runs h once for the call's key, or gives the receipt of whoever did. A receipt of a refusal comes with an
	// error: *Declined. Other errors are those of this package and of ctx; what each allows stands with its type.
	Do(ctx context.Context, call Call, h Handler) (Result, error)
}
