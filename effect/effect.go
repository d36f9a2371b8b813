package effect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/flightd/flightd/flight"
)

// Call is a request to make an effect happen once.
type Call struct {
	Key        flight.Key
	Submission flight.Submission
	// LookUp asks the provider whether the effect happened. Recovery verify needs it, and so does a policy with Lookup.
	LookUp LookUp
	// Callback says that the handler may hand its attempt over to a callback: see Attempt.Suspend. It needs a client, and a server
	// with a public URL; else nothing is opened.
	Callback bool
	// Wait bounds the wait for another caller's attempt; 0 waits until the caller's context ends.
	Wait time.Duration
}

// Handler performs the effect. Its context is the attempt's, not the caller's. It ends with the attempt's timeout, a
// cancellation (cause ErrCancelRequested), Close (cause ErrClosed), and, under recovery verify only, with the loss of
// the lease (cause ErrLeaseLost). The handler must return soon after. A Do of its own key would wait for itself, and is
// rejected with *flight.InvalidError. Classify says which outcome the returned error means.
type Handler func(ctx context.Context, at *Attempt) (Answer, error)

// LookUp asks the provider whether an effect happened. It returns flight.FindingHappened with the provider's answer,
// flight.FindingNotHappened, or flight.FindingNone when it could not find out; an error counts as FindingNone. The
// attempt has the number and the idempotency key of the attempt in doubt. Through a client, its FencingToken is empty.
type LookUp func(ctx context.Context, at *Attempt) (flight.Finding, Answer, error)

// Answer is the result of an effect: the id of the object at the provider, and the body that every duplicate call gets.
type Answer struct {
	ExternalID  string // at most flight.MaxText bytes are stored: put longer ones into the body
	ContentType string
	Body        []byte
}

// JSON returns an answer with v as its JSON body. A string in v that is not valid UTF-8 is an error, because JSON cannot hold it.
func JSON(externalID string, v any) (Answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Answer{}, err
	}
	if _, raw := v.(json.RawMessage); !raw && bytes.Contains(bytes.ReplaceAll(body, []byte(`\\`), nil), []byte(`\ufffd`)) {
		return Answer{}, errors.New("json: a text is not valid UTF-8") // json.Marshal replaced invalid bytes
	}
	return Answer{ExternalID: externalID, ContentType: "application/json", Body: body}, nil
}

// Source is how a caller got its result.
type Source uint8

// The sources.
const (
	SourceExecuted Source = iota // the call ran the effect
	SourceJoined                 // the call joined a running one of the same process
	SourceReplayed               // the receipt was stored already
)

var sourceNames = [...]string{"executed", "joined", "replayed"}

// String returns the source as the API writes it.
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "invalid"
}

// Result is the receipt of a flight that has ended: Outcome is OutcomeSucceeded or OutcomeRefused.
type Result struct {
	Key       flight.Key
	FlightID  flight.ID
	Outcome   flight.Outcome
	Source    Source
	Attempt   uint32 // the attempt that the receipt names
	Answer    Answer
	Digest    flight.Digest // of the whole body, even if it is truncated
	Size      int           // of the whole body, in bytes
	Truncated bool          // Answer.Body is only its beginning, or empty because a person resolved the doubt without a body
	At        time.Time     // when the receipt was stored
}

// Doer makes effects happen once. The executor and the HTTP client implement it.
type Doer interface {
	// Do runs h once for the call's key, or returns the stored receipt. The receipt of a refused effect comes with the
	// error *Declined. Other errors are those of this package, whose types say how to go on, and those of ctx.
	Do(ctx context.Context, call Call, h Handler) (Result, error)
}
