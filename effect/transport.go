package effect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"

	"github.com/flightd/flightd/flight"
)

// The headers that travel with every effect.
const (
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderFencingToken   = "Flightd-Fencing-Token"
)

// Transport is an http.RoundTripper for the effect's own request. It adds the idempotency key and the fencing token,
// notes the first byte written, and refuses to start when the lease is lost.
//
// It sends one request at most: Go's own client repeats a request that carries an Idempotency-Key when a reused
// connection dies, and so acts twice in one attempt. So each effect goes out with a body that cannot be rewound, on a
// connection of its own wherever a second effect would be one too many, and over HTTP/1.1. A nil base is a transport
// made for this attempt by the rules of http.DefaultTransport.
func (a *Attempt) Transport(base *http.Transport) http.RoundTripper {
	a.Watch()
	if base == nil {
		base = http.DefaultTransport.(*http.Transport)
	}
	own := base.Clone()
	own.ForceAttemptHTTP2 = false
	own.TLSNextProto = nil
	own.Protocols = new(http.Protocols)
	own.Protocols.SetHTTP1(true)
	own.DisableKeepAlives = true
	return &transport{at: a, base: own}
}

type transport struct {
	at   *Attempt
	base *http.Transport
}

// emptyBody is a body that says nothing and, unlike no body at all, keeps the client from sending the request twice.
type emptyBody struct{ io.Reader }

func (emptyBody) Close() error { return nil }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.at.mayStart(); err != nil {
		closeBody(req)
		return nil, err
	}
	trace := &httptrace.ClientTrace{
		// Right before the first byte: the last moment at which the lease can keep the effect from starting.
		GotConn: func(httptrace.GotConnInfo) { t.at.marks.Or(markSent) },
	}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	out.Header.Set(HeaderIdempotencyKey, t.at.IdempotencyKey())
	out.Header.Set(HeaderFencingToken, t.at.FencingToken())
	out.GetBody = nil
	if out.Body == nil || out.Body == http.NoBody {
		out.Body, out.ContentLength = emptyBody{bytes.NewReader(nil)}, 0
	}
	return t.base.RoundTrip(out)
}

func (a *Attempt) mayStart() error {
	if a.spec.MayStart == nil {
		return nil
	}
	if err := a.spec.MayStart(); err != nil {
		return NotDone(err)
	}
	return nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// maxAnswer bounds how much of a provider's answer is read into memory.
const maxAnswer = 16 << 20

// FromHTTP turns a provider's HTTP answer into a handler's: by the table of flight.HTTPOutcome, with the whole body as
// the receipt's. It reads and closes the body. An answer that could not be read whole is of unknown outcome.
func FromHTTP(resp *http.Response, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("answer %d cut off: %w", resp.StatusCode, err)
	}
	if len(body) > maxAnswer {
		body = body[:maxAnswer]
	}
	answer := Answer{ContentType: resp.Header.Get("Content-Type"), Body: body}
	switch flight.HTTPOutcome(resp.StatusCode) {
	case flight.Succeeded:
		return answer, nil
	case flight.Refused:
		return answer, Refused(statusError(resp.StatusCode, body))
	case flight.NotDone:
		return answer, NotDone(statusError(resp.StatusCode, body))
	}
	return answer, statusError(resp.StatusCode, body)
}

func statusError(status int, body []byte) error {
	const enough = 200
	if len(body) > enough {
		body = body[:enough]
	}
	return errors.New(http.StatusText(status) + ": " + string(body))
}
