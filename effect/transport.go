package effect

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// Headers of every request through Transport.
const (
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderFencingToken   = "Flightd-Fencing-Token"
)

// Transport returns an http.RoundTripper for the effect's request. It adds the idempotency key, the fencing token and
// the traceparent of the call. It records the first written byte, and rejects that write if the lease has been lost,
// however long the dialing took. Through a tunneling proxy, the first byte is that of the request for the tunnel.
//
// Each request is sent at most once. Go's http.Transport repeats a request with an Idempotency-Key when a reused
// connection fails, and would so act twice in one attempt. So each request has a body that cannot be rewound, and its
// own connection, over HTTP/1.1.
//
// After a request with unknown outcome, further requests fail, unless the recovery is resend or their method is safe
// (GET, HEAD, OPTIONS, TRACE). Following a redirect that repeats the request (307, 308) is allowed.
//
// After a redirect to another host, or from https to http, a request has neither the idempotency key nor the fencing
// token. A request that could act there without the key is not sent: it fails, and its outcome is unknown.
//
// A nil base means http.DefaultTransport. If a program has replaced that by another type than *http.Transport, every
// request fails: the replacement could send a request twice, and bypassing it could reach the real provider from a
// test. To observe requests, wrap the returned RoundTripper: otelhttp.NewTransport(at.Transport(&http.Transport{})).
func (a *Attempt) Transport(base *http.Transport) http.RoundTripper {
	a.Watch()
	if base == nil {
		known, ok := http.DefaultTransport.(*http.Transport)
		if !ok || known == nil {
			return unknownTransport{http.DefaultTransport}
		}
		base = known
	}
	own := base.Clone()
	own.ForceAttemptHTTP2 = false
	own.TLSNextProto = nil
	own.Protocols = new(http.Protocols)
	own.Protocols.SetHTTP1(true)
	own.DisableKeepAlives = true
	own.DialContext = a.guardDial(dialOf(base))
	own.DialTLSContext = a.guardDial(dialTLSOf(base))
	return &transport{at: a, base: own}
}

// unknownTransport replaces an http.DefaultTransport that is not an *http.Transport.
type unknownTransport struct{ http.RoundTripper }

func (t unknownTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	closeBody(req)
	return nil, fmt.Errorf("effect: http.DefaultTransport is a %T, which may send a request twice: pass an *http.Transport to at.Transport", t.RoundTripper)
}

type transport struct {
	at   *Attempt
	base *http.Transport
}

// emptyBody is an empty body that cannot be rewound. Without a body, http.Transport could send the request twice.
type emptyBody struct{ io.Reader }

func (emptyBody) Close() error { return nil }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.at.checkMayStart(); err != nil {
		closeBody(req)
		return nil, err
	}
	unsafe, away := !isSafe(req.Method), leavesProvider(req)
	_, follows := t.at.redirects.LoadAndDelete(req.Response)
	if unsafe && away {
		closeBody(req)
		return nil, fmt.Errorf("effect: the provider redirects this %s to another host, %s, which would act without the idempotency key", req.Method, req.URL.Host)
	}
	if unsafe && !follows {
		if err := t.at.checkEarlierSends(); err != nil {
			closeBody(req)
			return nil, err
		}
	}
	var used *guardedConn
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { used, connected = guardedConnOf(got), true }}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	if !away {
		out.Header.Set(HeaderIdempotencyKey, t.at.IdempotencyKey())
	}
	if token := t.at.FencingToken(); token != "" && !away {
		out.Header.Set(HeaderFencingToken, token)
	}
	if tp := t.traceparent(req); tp != "" {
		out.Header.Set(HeaderTraceparent, tp)
	}
	out.GetBody = nil
	if out.Body == nil || out.Body == http.NoBody {
		out.Body, out.ContentLength = emptyBody{bytes.NewReader(nil)}, 0
	}
	if unsafe {
		t.at.possibleEffects.Add(1)
	}
	resp, err := t.base.RoundTrip(out)
	if unsafe {
		t.noteOutcome(connected && (used == nil || used.started.Load()), follows, resp)
	}
	if used == nil {
		return resp, err
	}
	if resp != nil && resp.TLS == nil {
		resp.TLS = used.state()
	}
	if why := used.writeErr.Load(); err != nil && why != nil {
		err = *why // err may only say that the connection was closed afterwards
	}
	return resp, err
}

func guardedConnOf(got httptrace.GotConnInfo) *guardedConn {
	conn := got.Conn
	if secured, ok := conn.(*tls.Conn); ok { // in a tunnel
		conn = secured.NetConn()
	}
	guarded, _ := conn.(*guardedConn)
	if guarded != nil {
		guarded.started.Store(false) // the request for the tunnel was not the effect: check again
	}
	return guarded
}

// leavesProvider reports whether req follows a redirect to another host than the first request's, or from https to
// http.
func leavesProvider(req *http.Request) bool {
	first := req
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return !strings.EqualFold(first.URL.Host, req.URL.Host) || first.URL.Scheme == "https" && req.URL.Scheme != "https"
}

// isSafe reports whether requests of this method change nothing.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// noteOutcome counts the outcome of an unsafe request. follows means that the request follows a redirect, whose first
// request is counted in unknownSends already.
func (t *transport) noteOutcome(started, follows bool, resp *http.Response) {
	at := t.at
	if !started { // the outcome of the redirected request stays unknown
		at.possibleEffects.Add(-1)
		return
	}
	at.transportSends.Add(1)
	if follows {
		at.unknownSends.Add(-1)
	}
	outcome := flight.OutcomeUnknown
	if resp != nil {
		outcome = outcomeOf(resp)
	}
	switch outcome {
	case flight.OutcomeUnknown:
		at.unknownSends.Add(1)
		if resp != nil && isRedirect(resp.StatusCode) {
			at.redirects.Store(resp, nil)
		}
		return
	case flight.OutcomeNotDone, flight.OutcomeRefused:
		if at.possibleEffects.Add(-1) == 0 {
			at.firstSend.Store(nil)
		}
	}
	resp.Body = &answerBody{resp.Body, at}
}

// answerBody counts an answer whose body cannot be read completely as an unknown outcome.
type answerBody struct {
	io.ReadCloser
	at *Attempt
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.at.unknownSends.Add(1)
	}
	return n, err
}

func isRedirect(status int) bool { return status >= 300 && status < 400 }

// outcomeOf returns the outcome of an answer. After a followed redirect of an unsafe request it is unknown, unless the
// request was repeated there and succeeded. A response without its request counts as one to an unsafe request.
func outcomeOf(resp *http.Response) flight.Outcome {
	req := resp.Request
	if req == nil {
		return flight.HTTPOutcome(resp.StatusCode, false)
	}
	outcome := flight.HTTPOutcome(resp.StatusCode, isSafe(req.Method))
	for before := req.Response; before != nil && before.Request != nil; before = before.Request.Response {
		if !isSafe(before.Request.Method) && (outcome != flight.OutcomeSucceeded || isSafe(req.Method)) {
			return flight.OutcomeUnknown
		}
	}
	return outcome
}

// traceparent returns the header to add, or "" if the request has one already.
func (t *transport) traceparent(req *http.Request) string {
	if req.Header.Get(HeaderTraceparent) != "" {
		return ""
	}
	if tp := Traceparent(req.Context()); tp != "" {
		return tp
	}
	return t.at.Traceparent()
}

func (a *Attempt) checkMayStart() error {
	if first := a.firstSend.Load(); first != nil && a.spec.Window > 0 && first.Add(a.spec.Window).Remaining() <= 0 {
		return NotDone(&notSentError{errWindowOver})
	}
	if a.spec.MayStart == nil {
		return nil
	}
	if err := a.spec.MayStart(); err != nil {
		return NotDone(&notSentError{err})
	}
	return nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// dialOf returns the function with which base dials.
func dialOf(base *http.Transport) dial {
	//lint:ignore SA1019 a base may still say it so, and net/http goes by it
	old := base.Dial
	switch {
	case base.DialContext != nil:
		return base.DialContext
	case old != nil:
		return func(_ context.Context, network, address string) (net.Conn, error) { return old(network, address) }
	}
	return new(net.Dialer).DialContext
}

// dialTLSOf returns the function with which base dials for https, including the handshake.
func dialTLSOf(base *http.Transport) dial {
	//lint:ignore SA1019 a base may still say it so, and net/http goes by it
	old := base.DialTLS
	switch {
	case base.DialTLSContext != nil:
		return base.DialTLSContext
	case old != nil:
		return func(_ context.Context, network, address string) (net.Conn, error) { return old(network, address) }
	}
	plain := dialOf(base)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain(ctx, network, address)
		if err != nil {
			return nil, err
		}
		cfg := &tls.Config{}
		if base.TLSClientConfig != nil {
			cfg = base.TLSClientConfig.Clone()
		}
		if cfg.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			cfg.ServerName = host
		}
		cfg.NextProtos = []string{"http/1.1"}
		if d := base.TLSHandshakeTimeout; d > 0 {
			bounded, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			ctx = bounded
		}
		secured := tls.Client(conn, cfg)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return secured, nil
	}
}

// guardDial returns a dial function whose connections check the lease before their first byte.
func (a *Attempt) guardDial(d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConn{Conn: conn, at: a}, nil
	}
}

// guardedConn checks the lease before the first byte, and records that it was written.
type guardedConn struct {
	net.Conn
	at       *Attempt
	started  atomic.Bool
	writeErr atomic.Pointer[error] // why the first write was rejected
}

// Write implements net.Conn. Its first call is the point of no return: if the process dies after it, the outcome is
// unknown.
func (c *guardedConn) Write(b []byte) (int, error) {
	if !c.started.Load() {
		err := c.at.checkMayStart()
		if err == nil {
			err = c.at.markSent()
		}
		if err != nil {
			c.writeErr.CompareAndSwap(nil, &err)
			return 0, err
		}
		c.started.Store(true)
	}
	return c.Conn.Write(b)
}

// state returns the TLS state; nil without TLS.
func (c *guardedConn) state() *tls.ConnectionState {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := secured.ConnectionState()
	return &state
}

// maxAnswer bounds the bytes that are read of a provider's answer.
const maxAnswer = 16 << 20

// FromHTTP turns a provider's HTTP answer into a handler's result, by the table of flight.HTTPOutcome. The body, up to
// 16 MiB, becomes that of the receipt. FromHTTP reads and closes the body.
//
// The outcome is unknown when the body cannot be read completely. It is also unknown after a followed redirect of an
// unsafe request, unless the request was repeated there (307, 308) and succeeded; a handler that knows its provider may
// return NotDone instead. The error has the pause of a Retry-After. Its NotDone is about this request alone: see
// Classify.
func FromHTTP(resp *http.Response, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the body of answer %d: %w", resp.StatusCode, err)
	}
	if len(body) > maxAnswer {
		body = body[:maxAnswer]
	}
	answer := Answer{ContentType: resp.Header.Get("Content-Type"), Body: body}
	switch outcomeOf(resp) {
	case flight.OutcomeSucceeded:
		return answer, nil
	case flight.OutcomeRefused:
		return answer, &refusedError{err: statusError(resp.StatusCode, body), answered: true}
	case flight.OutcomeNotDone:
		return answer, RetryAfter(&notDoneError{err: statusError(resp.StatusCode, body), answered: true}, parseRetryAfter(resp.Header, time.Now()))
	}
	return answer, RetryAfter(statusError(resp.StatusCode, body), parseRetryAfter(resp.Header, time.Now()))
}

// parseRetryAfter parses a Retry-After (RFC 9110, section 10.2.3): seconds, or a date. It returns 0 when there is none,
// or it is malformed. The clients of other languages have the same rule.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	asked := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(asked, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the greatest number
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(asked)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// httpError is an answer of a provider that is no success.
type httpError struct {
	status int
	body   string
}

func (e *httpError) Error() string { return http.StatusText(e.status) + ": " + e.body }

func statusError(status int, body []byte) error {
	const enough = 200
	return &httpError{status, string(body[:min(enough, len(body))])}
}

// StatusOf returns the HTTP status of the provider's answer that FromHTTP has made the error of; ok is false for every other error.
func StatusOf(err error) (status int, ok bool) {
	if answer, ok := errors.AsType[*httpError](err); ok {
		return answer.status, true
	}
	return 0, false
}
