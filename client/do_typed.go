package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Attempt is one attempt at an effect, as its handler sees it.
type Attempt = *effect.Attempt

// Ref is a key without its namespace: Do uses the namespace of its Doer.
type Ref struct{ name, id string }

// Key identifies an effect: name is its kind, id its business identifier, such as an order number.
func Key(name, id string) Ref { return Ref{name, id} }

// Refused marks an error as a final rejection by the provider: the effect did not happen and never will.
func Refused(err error) error { return effect.Refused(err) }

// NotDone marks an error after which the effect certainly did not happen this time.
func NotDone(err error) error { return effect.NotDone(err) }

// FromHTTP turns a provider's HTTP answer into a handler's answer: see effect.FromHTTP. The pause of a Retry-After is
// passed to the caller: see Client.Do.
func FromHTTP(resp *http.Response, err error) (effect.Answer, error) {
	return effect.FromHTTP(resp, err)
}

// CallOption is an option of Do.
type CallOption func(*effect.Call)

// WithPolicy sets the flight's policy; the policy of the key's first caller applies. The default recovery is hold.
func WithPolicy(p flight.Policy) CallOption {
	return func(c *effect.Call) { c.Submission.Policy = p }
}

// WithLookUp sets the function that asks the provider whether the effect happened. Recovery verify needs it.
func WithLookUp(look effect.LookUp) CallOption { return func(c *effect.Call) { c.LookUp = look } }

// WithCallback lets the handler hand its attempt over to a callback: see Attempt.CallbackURL and Attempt.Suspend. Do then returns
// *Suspended, unless the callback came first.
func WithCallback() CallOption { return func(c *effect.Call) { c.Callback = true } }

// WithWaitTimeout bounds the wait for another caller's attempt. After it the error is *Busy.
func WithWaitTimeout(d time.Duration) CallOption { return func(c *effect.Call) { c.Wait = d } }

// KeyDecides makes the key alone identify the effect: the first input is used, and later inputs are not compared with
// it.
func KeyDecides() CallOption {
	return func(c *effect.Call) { c.Submission.Fingerprint = flight.NoFingerprint }
}

// ExternalIDer is implemented by results that know the id of the object at the provider.
type ExternalIDer interface{ ExternalID() string }

// Do runs fn once for the key and the input, through a Client or an executor, and returns the same result to every
// caller. Input and result are stored as JSON. The call that executed fn gets the value that fn returned; other calls
// get it decoded from JSON.
func Do[T any](ctx context.Context, doer effect.Doer, key Ref, input any, fn func(context.Context, Attempt) (T, error), opts ...CallOption) (T, error) {
	var zero T
	call, err := newCall(doer, key, input, opts)
	if err != nil {
		return zero, err
	}
	var made atomic.Pointer[madeValue[T]] // two handlers may return at once: one that hung, and that of a later attempt
	result, err := doer.Do(ctx, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		value, err := fn(ctx, at)
		if err != nil {
			return effect.Answer{}, err
		}
		made.Store(&madeValue[T]{at.Number(), value})
		return answerOf(value), nil
	})
	if err != nil {
		return zero, err
	}
	if own := made.Load(); result.Source == effect.SourceExecuted && own != nil && own.attempt == result.Attempt {
		return own.value, nil
	}
	return valueOf[T](result)
}

// madeValue is the value that a handler returned in one attempt.
type madeValue[T any] struct {
	attempt uint32
	value   T
}

// AnswerOf returns the answer that Do stores for the value that its function returns.
func AnswerOf(value any) effect.Answer { return answerOf(value) }

// answerOf returns the answer to store for a value. If the value cannot be encoded as JSON, or its methods panic, the
// attempt still succeeds, because the effect has happened.
func answerOf(value any) (answer effect.Answer) {
	id := externalIDOf(value)
	defer func() {
		if p := recover(); p != nil {
			answer = incompleteAnswer(id, fmt.Errorf("panic: %v", p))
		}
	}()
	answer, err := effect.JSON(id, value)
	if err != nil {
		return incompleteAnswer(id, err)
	}
	return answer
}

// externalIDOf returns the external id of a value. It returns "" if the value has no such method, or if the method panics, as it often does
// on a nil pointer.
func externalIDOf(value any) (id string) {
	defer func() { _ = recover() }()
	if known, ok := value.(ExternalIDer); ok {
		id = known.ExternalID()
	}
	return id
}

func incompleteAnswer(id string, why error) effect.Answer {
	return effect.Answer{ExternalID: id, ContentType: wire.TypeIncomplete, Body: []byte("the result cannot be written as JSON: " + why.Error())}
}

// inexact matches JSON that may contain a number that float64 cannot hold exactly.
var inexact = regexp.MustCompile(`[0-9]{16}|[eE]\+?[0-9]{3}`)

// valueOf decodes the result's body. If the body has such numbers, the numbers in fields of type any are json.Number.
func valueOf[T any](result effect.Result) (T, error) {
	var value T
	body := result.Answer.Body
	if result.Truncated || result.Answer.ContentType == wire.TypeIncomplete {
		return value, &ReceiptTruncated{Result: result}
	}
	var err error
	switch decoder := json.NewDecoder(bytes.NewReader(body)); {
	case !utf8.Valid(body):
		err = fmt.Errorf("%s is not in UTF-8", cmp.Or(result.Answer.ContentType, "the body"))
	case inexact.Match(body) && json.Valid(body):
		decoder.UseNumber()
		err = decoder.Decode(&value)
	default:
		err = json.Unmarshal(body, &value)
	}
	if err != nil {
		return value, &ReceiptUnreadable{Result: result, Err: err}
	}
	return value, nil
}

// ReceiptTruncated means that the effect happened, and that only the beginning of its receipt is stored, or nothing:
// after a redaction, or because a person resolved the doubt without a body. Result has the stored bytes, the full size,
// the digest of the whole body, and the external id.
type ReceiptTruncated struct {
	Result effect.Result
}

func (e *ReceiptTruncated) Error() string {
	if e.Result.Answer.ContentType == wire.TypeIncomplete {
		return fmt.Sprintf("%s happened; its caller could not write the whole result as JSON: %s", e.Result.Key, e.Result.Answer.Body)
	}
	if e.Result.Size == 0 {
		return fmt.Sprintf("%s happened; a person resolved it without a receipt's body", e.Result.Key)
	}
	return fmt.Sprintf("%s happened; only %d of the %d bytes of its receipt are stored", e.Result.Key, len(e.Result.Answer.Body), e.Result.Size)
}

// ReceiptUnreadable means that the effect happened, and that its receipt, written by a person or another program, does
// not decode into the caller's type. Result has the receipt.
type ReceiptUnreadable struct {
	Result effect.Result
	Err    error
}

func (e *ReceiptUnreadable) Error() string {
	return fmt.Sprintf("%s happened; its receipt cannot be read: %v", e.Result.Key, e.Err)
}
func (e *ReceiptUnreadable) Unwrap() error { return e.Err }

func newCall(doer effect.Doer, ref Ref, input any, opts []CallOption) (effect.Call, error) {
	namespace := wire.DefaultNamespace
	if named, ok := doer.(interface{ Namespace() string }); ok {
		namespace = named.Namespace()
	}
	key, err := flight.NewKey(namespace, ref.name, ref.id)
	if err != nil {
		return effect.Call{}, err
	}
	data, err := effect.JSON("", input)
	if err != nil {
		return effect.Call{}, &flight.InvalidError{Field: "input", Detail: err.Error()}
	}
	call := effect.Call{Key: key}
	if call.Submission, err = submissionOf(data.Body); err != nil {
		return effect.Call{}, err
	}
	for _, opt := range opts {
		opt(&call)
	}
	return call, nil
}

// submissionOf makes the submission for an input. As in the server and the other clients, null is no input.
func submissionOf(data []byte) (flight.Submission, error) {
	if string(data) == "null" {
		return flight.Submission{Fingerprint: flight.FingerprintBytes(nil)}, nil
	}
	fingerprint, err := flight.FingerprintJSON(data, nil)
	return flight.Submission{Fingerprint: fingerprint, Input: flight.NewBlob(wire.TypeJSON, data, flight.MaxInput)}, err
}
