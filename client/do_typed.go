package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// Attempt is one try at an effect, as a handler sees it.
type Attempt = *effect.Attempt

// Ref names a key without its namespace, which is that of whoever does it.
type Ref struct{ name, id string }

// Key names a business intent: name is the kind of effect, id the business identifier, such as an order's.
func Key(name, id string) Ref { return Ref{name, id} }

// Refused marks an error as the provider's no: the effect did not happen and never will.
func Refused(err error) error { return effect.Refused(err) }

// NotDone marks an error as harmless: the effect surely did not happen this time.
func NotDone(err error) error { return effect.NotDone(err) }

// FromHTTP turns a provider's HTTP answer into what a handler returns: see effect.FromHTTP. Of the pause that a Retry-After
// asks for the caller is told: see Client.Do.
func FromHTTP(resp *http.Response, err error) (effect.Answer, error) {
	return effect.FromHTTP(resp, err)
}

// CallOption says more about a call of Do.
type CallOption func(*effect.Call)

// WithPolicy declares what holds for the flight; the first caller's policy stands. Without it, recovery is hold.
func WithPolicy(p flight.Policy) CallOption {
	return func(c *effect.Call) { c.Submission.Policy = p }
}

// WithLookUp says how the provider is asked what happened; recovery verify needs it.
func WithLookUp(look effect.LookUp) CallOption { return func(c *effect.Call) { c.LookUp = look } }

// WithWait bounds the wait for an attempt of somebody else; then the error is *Busy.
func WithWait(d time.Duration) CallOption { return func(c *effect.Call) { c.Wait = d } }

// KeyDecides says that the key alone decides what the same intent is: the first input stands, whatever later ones say.
func KeyDecides() CallOption {
	return func(c *effect.Call) { c.Submission.Fingerprint = flight.NoFingerprint }
}

// Identified is implemented by results that know the id of the external object they stand for.
type Identified interface{ ExternalID() string }

// Do runs fn once for the key and the input, through a Client or an executor, and gives every caller the same result.
// Input and result travel as JSON. A result that was executed by this very call is returned as fn made it.
func Do[T any](ctx context.Context, doer effect.Doer, key Ref, input any, fn func(context.Context, Attempt) (T, error), opts ...CallOption) (T, error) {
	var zero T
	call, err := newCall(doer, key, input, opts)
	if err != nil {
		return zero, err
	}
	var made atomic.Pointer[madeBy[T]] // a handler that hung may still return, while a later attempt's does
	result, err := doer.Do(ctx, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		value, err := fn(ctx, at)
		if err != nil {
			return effect.Answer{}, err
		}
		made.Store(&madeBy[T]{at.Number(), value})
		return answerOf(value), nil
	})
	if err != nil {
		return zero, err
	}
	if own := made.Load(); result.Source == effect.Executed && own != nil && own.attempt == result.Attempt {
		return own.value, nil
	}
	return valueOf[T](result)
}

// madeBy is what a handler made in one attempt.
type madeBy[T any] struct {
	attempt uint32
	value   T
}

// answerOf is what is kept of a value. One that JSON cannot hold is no reason to call the effect failed: it happened.
func answerOf(value any) effect.Answer {
	id := ""
	if known, ok := value.(Identified); ok {
		id = known.ExternalID()
	}
	answer, err := effect.JSON(id, value)
	if err != nil {
		return effect.Answer{ExternalID: id, ContentType: "text/plain; charset=utf-8", Body: []byte("the result cannot be written as JSON: " + err.Error())}
	}
	return answer
}

// valueOf reads the result's body.
func valueOf[T any](result effect.Result) (T, error) {
	var value T
	if result.Truncated {
		return value, &ReceiptTruncated{Result: result}
	}
	if err := json.Unmarshal(result.Answer.Body, &value); err != nil {
		return value, &Unreadable{Result: result, Err: err}
	}
	return value, nil
}

// ReceiptTruncated says that the effect happened, and that only the beginning of its receipt is kept, or nothing where it was
// redacted. Result has what is kept, the full size, the digest over all of it, and the external id.
type ReceiptTruncated struct {
	Result effect.Result
}

func (e *ReceiptTruncated) Error() string {
	return fmt.Sprintf("%s happened; only %d of the %d bytes of its receipt are kept", e.Result.Key, len(e.Result.Answer.Body), e.Result.Size)
}

// Unreadable says that the effect happened and that its receipt is not what the caller expects: a person or another program
// wrote it. Result has what there is.
type Unreadable struct {
	Result effect.Result
	Err    error
}

func (e *Unreadable) Error() string {
	return fmt.Sprintf("%s happened; its receipt cannot be read: %v", e.Result.Key, e.Err)
}
func (e *Unreadable) Unwrap() error { return e.Err }

func newCall(doer effect.Doer, ref Ref, input any, opts []CallOption) (effect.Call, error) {
	namespace := wire.DefaultNamespace
	if named, ok := doer.(interface{ Namespace() string }); ok {
		namespace = named.Namespace()
	}
	key, err := flight.NewKey(namespace, ref.name, ref.id)
	if err != nil {
		return effect.Call{}, err
	}
	data, err := json.Marshal(input)
	if err != nil {
		return effect.Call{}, &flight.InvalidError{Field: "input", Detail: err.Error()}
	}
	call := effect.Call{Key: key}
	if call.Submission, err = submissionOf(data); err != nil {
		return effect.Call{}, err
	}
	for _, opt := range opts {
		opt(&call)
	}
	return call, nil
}

// submissionOf is what an input submits. null is no input, as it is for the server and in every other language.
func submissionOf(data []byte) (flight.Submission, error) {
	if string(data) == "null" {
		return flight.Submission{Fingerprint: flight.FingerprintBytes(nil)}, nil
	}
	fingerprint, err := flight.FingerprintJSON(data, nil)
	return flight.Submission{Fingerprint: fingerprint, Input: flight.NewBlob(wire.TypeJSON, data, flight.MaxInput)}, err
}
