package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/wire"
)

// request is one thing that is asked of whichever server answers. It may be sent several times: each route is guarded
// against that, by a nonce, a token, a version, or by changing nothing.
type request struct {
	method  string
	path    string // with the query
	body    []byte
	kind    string // of the body; empty: JSON
	ifMatch string
	ifNone  string
	prefer  string
	trace   string     // traceparent of the call that it is for
	key     flight.Key // whose namespace goes out, and which errors name
	actor   bool       // say who decides
	has     string     // what a good answer of flightd has; what does not have it is somebody else's
	receipt string     // id of a flight: a good answer is its receipt's bytes, and headers that say what they are
	nonce   string     // of an open: an answer to another one is none to this

	everywhere bool // it is about all namespaces

	once     bool          // not even again where a connection turned out to be stale
	timeout  time.Duration // of one try; 0: 10 s
	patience time.Duration // with tries that are not answered, or not now; 0: the client's
	tries    int           // at most so many; 0: as many as patience allows
}

// response is an answer that was read whole.
type response struct {
	status int
	header http.Header
	body   []byte
	sent   clock.Moment // right before the try that was answered
	time   int64        // the ledger's, as the answer says; 0 where it does not
	unsure bool         // an earlier try may still arrive
}

const (
	defaultTry  = 10 * time.Second
	maxAnswer   = 64 << 20
	firstPause  = 20 * time.Millisecond
	longPause   = time.Second
	longestHint = 5 * time.Second // of a Retry-After that is believed
)

// ask sends the request until a server answers it. An answer that is a problem comes as *Error. When nobody answers in
// time the error is *Unavailable, and the request may have been carried out unless nothing was sent.
func (c *Client) ask(ctx context.Context, r request) (response, error) {
	patience := cmp.Or(r.patience, c.opts.patience)
	r.trace = effect.Traceparent(ctx)
	var deadline time.Time // patience begins with the first failure: a good answer may take its time
	pause := firstPause
	var unsure, fresh bool
	turns := 0 // times in a row that it was turned away
	for try := 1; ; try++ {
		server := c.best.Load()
		resp, err := c.try(ctx, int(server), &r)
		resp.unsure = unsure
		wait, again := again(err)
		if turns++; !turnedAway(err) {
			turns = 0
		}
		if !again && (turns == 0 || turns >= len(c.servers)) {
			return resp, err
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(patience)
		}
		unsure = unsure || mayHaveArrived(err)
		var stale *staleError
		if !fresh && !r.once && errors.As(err, &stale) {
			fresh = true
			try--
			continue
		}
		c.best.CompareAndSwap(server, (server+1)%uint32(len(c.servers)))
		if wait == 0 {
			wait = clock.Jitter(pause)
			pause = min(2*pause, longPause)
		}
		if try < len(c.servers) {
			wait = 0 // the next server may know better
		}
		if try == r.tries || time.Now().Add(wait).After(deadline) || !clock.Sleep(ctx, wait) {
			resp.unsure = unsure
			return resp, unavailable(ctx, err)
		}
	}
}

// again says whether a failed try is worth another one, and after how long, where the server said so.
func again(err error) (wait time.Duration, yes bool) {
	switch p := problemOf(err); {
	case err == nil:
		return 0, false
	case p == nil:
		return 0, true
	case p.Status < 500 && p.Status != http.StatusTooManyRequests:
		return 0, false
	default:
		return min(time.Duration(p.RetryAfterMS)*time.Millisecond, longestHint), true
	}
}

// turnedAway reports whether a request was not let in: the answer is not flightd's, or flightd rejected the credentials or the
// deployment. Nothing of the request was carried out, and the next server may do it.
func turnedAway(err error) bool {
	switch p := problemOf(err); {
	case p == nil:
		return false
	case p.Code == wire.Internal:
		return p.Status < http.StatusInternalServerError // flightd itself says so with a 500
	default:
		return p.Code == wire.Unauthenticated || p.Code == wire.Forbidden || p.Code == wire.WrongDeployment
	}
}

// mayHaveArrived reports whether a request that failed so may still be carried out.
func mayHaveArrived(err error) bool {
	if p := problemOf(err); p != nil {
		return p.Code == wire.Internal && !turnedAway(err) // the server does not know it either
	}
	var op *net.OpError
	return !(errors.As(err, &op) && op.Op == "dial")
}

func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = &endedError{context.Cause(ctx), err}
	} else if problemOf(err) != nil {
		return err
	}
	return &effect.Unavailable{Code: "unreachable", Cause: err}
}

// try sends the request once.
func (c *Client) try(ctx context.Context, server int, r *request) (response, error) {
	resp, err := c.carry(ctx, server, r, cmp.Or(r.timeout, defaultTry))
	if errors.Is(err, errHeader) {
		return resp, &Error{Problem: Problem{Code: wire.InputInvalid, Status: http.StatusBadRequest, Detail: err.Error()}}
	}
	switch {
	case err != nil || resp.status == http.StatusNotModified:
		return resp, err
	case resp.status >= 300:
		err := refusal(&resp, r.key)
		if p := problemOf(err); p != nil {
			c.ledger.set(max(resp.time, p.LedgerTime), resp.sent)
		}
		return resp, err
	case !bytes.Contains(resp.body, []byte(r.has)), !r.answered(resp.body), r.receipt != "" && !isReceipt(&resp, r.receipt):
		return resp, &effect.Unavailable{Code: "unreachable", Cause: errors.New(stranger(&resp))}
	}
	c.ledger.set(resp.time, resp.sent)
	return resp, nil
}

// answered reports whether an answer is to this very open. Where something between gave one caller's to another one of the
// same flight, both would act in one attempt. A replay is everybody's.
func (r *request) answered(body []byte) bool {
	if r.nonce == "" || bytes.Contains(body, []byte(`"nonce":"`+r.nonce+`"`)) {
		return true
	}
	var a wire.OpenAnswer
	return wire.DecodeAnswer(body, &a) == nil && (a.Nonce == r.nonce || a.Decision == wire.DecisionReplay)
}

// carry goes over the server's link, or, where it has none, through net/http.
func (c *Client) carry(ctx context.Context, server int, r *request, timeout time.Duration) (response, error) {
	if l := c.links[server]; l != nil {
		return l.do(ctx, c, r, timeout)
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.httpRequest(bounded, c.servers[server], r)
	if err != nil {
		return response{}, err
	}
	resp := response{sent: clock.Now()}
	answer, err := c.http.Do(req)
	if err == nil {
		defer answer.Body.Close()
		resp.status, resp.header, resp.time = answer.StatusCode, answer.Header, ledgerTime(answer.Header)
		resp.body, err = readBody(answer)
	}
	if err != nil && ctx.Err() != nil { // net/http gives the cause itself
		why := errors.New("it was given up")
		var op *net.OpError
		if errors.As(err, &op) {
			why = op // it tells where nothing was sent
		}
		err = &endedError{context.Cause(ctx), why}
	}
	return resp, err
}

// ledgerTime is what an answer says of the ledger's time.
func ledgerTime(h http.Header) int64 {
	ms, _ := strconv.ParseInt(h.Get(wire.HeaderLedgerTime), 10, 64)
	return ms
}

// header is one that depends on the request.
type header struct{ name, value string }

// headers are those that depend on the request.
func (c *Client) headers(r *request) []header {
	var list [7]header
	h := list[:0]
	if r.everywhere {
		h = append(h, header{wire.HeaderNamespace, wire.AllNamespaces})
	} else if ns := c.opts.namespace; !r.key.IsZero() && r.key.Namespace() != ns {
		h = append(h, header{wire.HeaderNamespace, r.key.Namespace()})
	} else if ns != wire.DefaultNamespace {
		h = append(h, header{wire.HeaderNamespace, ns})
	}
	if r.actor && c.opts.actor != "" {
		h = append(h, header{wire.HeaderActor, c.opts.actor})
	}
	for _, optional := range [...]header{{"If-Match", r.ifMatch}, {"If-None-Match", r.ifNone}, {wire.HeaderPrefer, r.prefer},
		{wire.HeaderDeployment, c.deployment}, {effect.HeaderTraceparent, r.trace}} {
		if optional.value != "" {
			h = append(h, optional)
		}
	}
	return h
}

func (c *Client) httpRequest(ctx context.Context, server string, r *request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, server+r.path, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // nobody sends this again but ask
	if r.body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.kind, wire.TypeJSON))
	}
	req.Header.Set("User-Agent", "flightd-go")
	for _, h := range c.headers(r) {
		if !sendable(h.value) {
			return nil, errHeader
		}
		req.Header.Set(h.name, h.value)
	}
	return req, nil
}

func readBody(answer *http.Response) ([]byte, error) {
	if n := answer.ContentLength; n >= 0 && n <= maxAnswer {
		body := make([]byte, n)
		_, err := io.ReadFull(answer.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("it is longer than %d bytes", maxAnswer)
	}
	return body, err
}

// refusal reads a problem document. What is none comes from something in between, a proxy perhaps, which cannot say what
// became of the request: where it says that there is no server, there is none.
func refusal(resp *response, key flight.Key) error {
	var said struct {
		Problem
		Retryable *bool `json:"retryable"` // no problem document but flightd's has it
	}
	err := json.Unmarshal(resp.body, &said)
	p := said.Problem
	if err == nil && p.Code != "" && said.Retryable != nil {
		p.Retryable = *said.Retryable
	} else {
		if resp.status >= http.StatusInternalServerError || resp.status == http.StatusRequestTimeout {
			return &effect.Unavailable{Code: "unreachable", Cause: errors.New(stranger(resp))}
		}
		p = Problem{Code: wire.Internal, Title: http.StatusText(resp.status), Detail: stranger(resp)}
	}
	if about := about(&p); !key.IsZero() && about != "" && about != key.FlightID().String() {
		return mixedUp(about) // it says nothing of what was asked
	}
	p.Status = resp.status
	if p.RetryAfterMS == 0 {
		if seconds, err := strconv.Atoi(resp.header.Get("Retry-After")); err == nil {
			p.RetryAfterMS = int64(seconds) * 1000
		}
	}
	return problem(p, key)
}

func stranger(resp *response) string {
	return fmt.Sprintf("answer %d of something that is not flightd: %.200q", resp.status, resp.body)
}

// isReceipt reports whether these are the bytes of that flight's receipt, whole or as much as is kept: whatever something between answers
// in flightd's place has no digest, and what was cut on its way another one.
func isReceipt(resp *response, flightID string) bool {
	digest, ok := wire.ParseDigest(resp.header.Get(wire.HeaderReceiptDigest))
	size, err := strconv.Atoi(resp.header.Get(wire.HeaderReceiptSize))
	return ok && err == nil && resp.header.Get(wire.HeaderFlightID) == flightID && (size > len(resp.body) || sha256.Sum256(resp.body) == digest)
}

// decode reads an answer leniently: later versions may have added fields.
func decode[T any](resp response, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := wire.DecodeAnswer(resp.body, out); err != nil {
		return nil, fmt.Errorf("client: the server's answer cannot be read: %w", err)
	}
	return out, nil
}
