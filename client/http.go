package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
)

// request is a request to any of the servers. It may be sent several times: each route can be repeated safely, because
// of a nonce, a fencing token, a version, or because it only reads.
type request struct {
	method      string
	path        string // with query
	body        []byte
	contentType string // content type of the body; "" is JSON
	ifMatch     string
	ifNoneMatch string
	prefer      string
	trace       string                                // traceparent of the call
	key         flight.Key                            // gives the namespace, and is named by errors; zero: none
	actor       bool                                  // name the person
	line        string                                // field of the request as a line of a batch; "": it is always sent by its own route
	read        func(*http.Response, *response) error // reads the body of an answer 200; nil: into response.body

	allNamespaces bool // all namespaces instead of one

	expires      bool          // it may be answered expired by one node's log, and not by another's
	noStaleRetry bool          // not even repeated over a new connection after a stale one
	timeout      time.Duration // of one try; 0 is 10 s
	retryTimeout time.Duration // how long tries that fail are repeated; 0 is WithRetryTimeout
	maxTries     int           // maximum number of tries; 0 is no bound besides the time
	waitUntil    time.Time     // end of the caller's wait: no try follows it while every server refuses connections; zero means no end
}

// response is a complete answer.
type response struct {
	status         int
	header         http.Header
	own            bool // it repeats the value of HeaderEcho of its request: flightd has answered this request, and no other
	body           []byte
	sentAt         clock.Instant // right before the answered try was written
	ledgerTime     int64         // ledger time in ms since 1970; 0 when the answer has none
	mayHaveArrived bool          // an earlier try may still be carried out
	inBatch        bool          // it is a line of the answer to a batch
}

const (
	defaultTryTimeout = 10 * time.Second
	maxAnswer         = 64 << 20
	minRetryPause     = 20 * time.Millisecond
	maxRetryPause     = time.Second
	maxRetryAfter     = 5 * time.Second // a longer Retry-After is shortened to this
	dialTimeout       = 3 * time.Second
)

// ask sends the request until a server answers. A problem document is returned as *Error. When no server answers in
// time the error is *Unavailable; response.mayHaveArrived then says whether a server may have carried the request out.
//
// Tries come in rounds. A round tries each server once, in the order of picker.pick. There is no pause within the first
// round, and none after a failure that another server may not have.
func (re *requester) ask(ctx context.Context, r request) (response, error) {
	retryTimeout := cmp.Or(r.retryTimeout, re.opts.times.retry)
	r.trace = effect.Traceparent(ctx)
	var deadline time.Time // counts from the first failure: a successful answer may take longer
	pause := minRetryPause
	var mayArrive, retriedStale, doubtedExpiry bool
	var reason error // why the last complete try failed: the end of ctx, which cuts a later one short, does not say it
	var order []int  // of this round
	var probe, rejections, silent, refusing int
	var rejected error     // of a server of this round that has rejected the request unread
	var hint time.Duration // the longest pause that a server of this round asked for
	for try := 1; ; try++ {
		place := (try - 1) % len(re.servers)
		if place == 0 {
			order, probe = re.picker.pick(len(re.servers), r.maxTries == 0) // a bounded number of tries is not spent on probes
			rejections, silent, refusing, rejected, hint = 0, 0, 0, nil, 0
		}
		server := order[place]
		resp, err := re.try(ctx, server, &r)
		if !retriedStale && !r.noStaleRetry && isStale(err) {
			retriedStale, mayArrive, reason = true, mayArrive || mayHaveArrived(err), err
			resp, err = re.try(ctx, server, &r)
		}
		if resp.inBatch && CodeOf(err) == wire.InFlight { // a line waits for no other caller
			r.line, mayArrive = "", mayArrive || !isUnproposed(err)
			resp, err = re.try(ctx, server, &r)
		}
		re.noteAnswer(ctx, server, probe, &resp, err)
		resp.mayHaveArrived = mayArrive
		wait, retry := canRetry(err)
		if r.expires && !doubtedExpiry && len(re.servers) > 1 && CodeOf(err) == wire.Expired {
			doubtedExpiry, retry = true, true // another node's log may reach further back
		}
		switch {
		case isRejectedUnread(err):
			rejections, rejected = rejections+1, err
		case err != nil && problemOf(err) == nil:
			silent++
		}
		if allRejected := rejections > 0 && rejections+silent == len(re.servers); !retry && !isRejectedUnread(err) || allRejected {
			if allRejected {
				resp.mayHaveArrived = mayArrive || mayHaveArrived(err)
				err = rejected
			}
			if isRejectedByTLS(err) {
				err = unavailableError(ctx, err)
			}
			return resp, err
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(retryTimeout)
		}
		if !mayHaveArrived(err) && problemOf(err) == nil {
			refusing++
		}
		if refusing == len(re.servers) && !r.waitUntil.IsZero() && r.waitUntil.Before(deadline) {
			deadline = r.waitUntil
		}
		mayArrive = mayArrive || mayHaveArrived(err)
		if reason == nil || !errors.Is(err, errGivenUp) {
			reason = err
		}
		hint = max(hint, wait)
		if place < len(re.servers)-1 && (try < len(re.servers) || isOfOneServer(err)) {
			wait = 0
		} else if wait = hint; wait == 0 {
			wait = clock.Jitter(pause)
			pause = min(2*pause, maxRetryPause)
		}
		if try == r.maxTries || time.Now().Add(wait).After(deadline) || !clock.Sleep(ctx, wait) {
			resp.mayHaveArrived = mayArrive
			return resp, unavailableError(ctx, reason)
		}
	}
}

// noteAnswer stores what the result of a try says about its server and about the ledger.
func (re *requester) noteAnswer(ctx context.Context, server, probe int, resp *response, err error) {
	p := problemOf(err)
	rejectedUnread := isRejectedUnread(err) // perhaps by another deployment, whose ledger has another time and index
	switch {
	case err == nil:
		re.ledgerClock.set(resp.ledgerTime, false)
		re.ledgerIndex.note(resp.header)
	case p != nil && !rejectedUnread:
		re.ledgerClock.set(max(resp.ledgerTime, p.LedgerTime), p.Code == wire.OpenExpired)
		re.ledgerIndex.note(resp.header)
	}
	switch {
	case err == nil, p != nil && !rejectedUnread && (p.Status < http.StatusInternalServerError || p.Code == wire.Reconciling):
		re.picker.answered(server, probe, resp.header)
	case server == probe, !errors.Is(ctx.Err(), context.Canceled): // a caller that gave up says nothing about the server
		re.picker.failed(server, probe)
	}
}

// canRetry reports whether a failed try should be repeated, and after which pause, or 0 if the server names none.
func canRetry(err error) (wait time.Duration, yes bool) {
	switch p := problemOf(err); {
	case err == nil || isRejectedByTLS(err):
		return 0, false
	case p == nil:
		return 0, true
	case p.Status < 500 && p.Status != http.StatusTooManyRequests && p.Status != http.StatusRequestTimeout, p.Code == wire.Reconciling: // a person must act
		return 0, false
	default:
		return min(time.Duration(p.RetryAfterMS)*time.Millisecond, maxRetryAfter), true
	}
}

// isOfOneServer reports whether another server may answer at once where this one failed: it did not answer, rejected the
// request unread, or knows no leader.
func isOfOneServer(err error) bool {
	switch p := problemOf(err); {
	case p == nil, isRejectedUnread(err):
		return true
	default:
		return slices.Contains([]wire.Code{wire.NoLeader, wire.LeaderLost, wire.Draining, wire.LedgerBehind}, p.Code)
	}
}

// isStale reports whether the server may have closed the connection of the failed request while it was idle.
func isStale(err error) bool {
	var failed *sendError
	return errors.As(err, &failed) && failed.stale
}

// isRejectedUnread reports whether the request was rejected before a route of flightd read it: the client or the server
// rejected the other's certificate, other software answered, or flightd rejected the credentials or the deployment. Nothing was carried
// out, and the next server may accept the request.
func isRejectedUnread(err error) bool {
	switch p := problemOf(err); {
	case err == nil: // the usual case: saves allocations
		return false
	case p == nil:
		return isRejectedByTLS(err)
	case p.Code == wire.Internal:
		return p.Status < http.StatusInternalServerError // with 500 it is flightd's own
	default:
		return p.Code == wire.Unauthenticated || p.Code == wire.Forbidden || p.Code == wire.WrongDeployment
	}
}

// mayHaveArrived reports whether a server may have received the failed request, and may still carry it out.
func mayHaveArrived(err error) bool {
	if p := problemOf(err); p != nil { // with these codes the server itself does not know
		return p.Code == wire.Internal && !isRejectedUnread(err) || p.Code == wire.LeaderLost || p.Code == wire.NoLeader || p.Code == wire.LeaseUnavailable
	}
	var failed *sendError
	return !(errors.As(err, &failed) && failed.notSent)
}

func unavailableError(ctx context.Context, err error) error {
	if already, ok := errors.AsType[*effect.Unavailable](err); ok && already.Code == "unreachable" {
		err = already.Cause // its code is added again below
	}
	if ctx.Err() != nil {
		err = &contextError{context.Cause(ctx), err}
	} else if problemOf(err) != nil {
		return err
	}
	return &effect.Unavailable{Code: "unreachable", Cause: err}
}

// try sends the request to one server, once. It concludes nothing from an answer to another request.
func (re *requester) try(ctx context.Context, server int, r *request) (response, error) {
	send := func(ctx context.Context, r *request) (response, error) { return re.send(ctx, re.servers[server], r) }
	if re.gatherers != nil {
		send = re.gatherers[server].send
	}
	resp, err := send(ctx, r)
	switch {
	case err != nil || resp.own && resp.status == http.StatusNotModified:
		return resp, err
	case resp.status >= 300:
		return resp, r.problemFrom(&resp)
	case !resp.own:
		return resp, &effect.Unavailable{Code: "unreachable", Cause: errors.New(describeForeignAnswer(&resp))}
	case r.path == versionPath && re.deployment != "": // this route answers the callers of every deployment
		if v, err := decode[Version](resp, nil); err != nil || v.Deployment != re.deployment {
			class, _ := wire.WrongDeployment.Class()
			return resp, newError(Problem{Code: wire.WrongDeployment, Status: class.Status, Title: class.Title, Hint: class.Hint,
				Detail: fmt.Sprintf("the client belongs to deployment %.100q, and not the server at %s", re.deployment, withoutUser(re.servers[server]))}, r.key)
		}
	}
	return resp, nil
}

// sendError is the error of a request that got no complete answer. Unless notSent is set, the server may have carried
// the request out.
type sendError struct {
	err     error
	notSent bool // there was no connection, or the server rejected it in its handshake: it has read nothing
	stale   bool // the connection had served another request before; the server may have closed it while it was idle
}

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// contextError is the error of a request whose context has ended, for that cause. errors.Is finds the cause; errors.As
// does not search it: the cause may be the error of another call, which must not be read as a server's answer to this
// one.
type contextError struct{ cause, err error }

func (e *contextError) Error() string        { return e.cause.Error() + ": " + e.err.Error() }
func (e *contextError) Is(target error) bool { return errors.Is(e.cause, target) }
func (e *contextError) Unwrap() error        { return e.err }

var (
	errTryTimeout = errors.New("the server did not answer in time")
	errGivenUp    = errors.New("the request was given up")
)

// send sends the request once and reads the whole answer. It calls the transport without an http.Client, so redirects
// are answers and are never followed. Errors are *sendError, and *Error for a header value that cannot be sent.
func (re *requester) send(ctx context.Context, server string, r *request) (resp response, err error) {
	tryCtx, cancel := context.WithTimeoutCause(ctx, cmp.Or(r.timeout, defaultTryTimeout), errTryTimeout)
	defer cancel()
	sent, reused := false, false
	tryCtx = httptrace.WithClientTrace(tryCtx, &httptrace.ClientTrace{GotConn: func(conn httptrace.GotConnInfo) {
		sent, reused, resp.sentAt = true, conn.Reused, clock.Now() // on this goroutine, before the first byte is written
	}})
	req, err := re.newRequest(tryCtx, server, r)
	if err != nil {
		return resp, err
	}
	answer, err := re.http.RoundTrip(req)
	if err == nil {
		defer answer.Body.Close()
		resp.status, resp.header, resp.own = answer.StatusCode, answer.Header, isOwn(answer, req)
		resp.ledgerTime, _ = strconv.ParseInt(answer.Header.Get(wire.HeaderLedgerTime), 10, 64) // 0: none
		if r.read != nil && resp.status == http.StatusOK && resp.own {
			err = r.read(answer, &resp)
		} else {
			resp.body, err = readBody(answer)
		}
	}
	if err == nil {
		return resp, nil
	}
	err = explainTLS(err, req.URL.Host, reused)
	failed := &sendError{err: err, notSent: !sent || isRejectedByTLS(err)}
	if ctx.Err() != nil {
		failed.err = fmt.Errorf("%w: %s", errGivenUp, req.URL.Host) // net/http returns the cause of ctx: see contextError
	} else if reused {
		failed.stale = true
		if !errors.Is(context.Cause(tryCtx), errTryTimeout) {
			re.http.CloseIdleConnections() // the others are probably as dead
		}
	}
	return resp, failed
}

// newRequest makes the HTTP request for one try.
func (re *requester) newRequest(ctx context.Context, server string, r *request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, server+r.path, body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // without it the transport repeats no request with a body: only ask does
	if token := re.opts.token(); token != "" {
		req.Header["Authorization"] = []string{"Bearer " + token}
	} else if user := req.URL.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	namespace := re.opts.namespace
	switch {
	case r.allNamespaces:
		namespace = wire.AllNamespaces
	case !r.key.IsZero():
		namespace = r.key.Namespace()
	}
	if namespace == wire.DefaultNamespace && wire.TokenNamespace(re.opts.token()) == "" {
		namespace = "" // without the header the server uses "default", too, unless the token has a namespace
	}
	kind, actor := "", ""
	if r.body != nil {
		kind = cmp.Or(r.contentType, wire.TypeJSON)
	}
	if r.actor {
		actor = re.opts.actor
	}
	for _, h := range [...]struct{ name, value string }{
		{"User-Agent", "flightd-go"}, {"Content-Type", kind}, {wire.HeaderNamespace, namespace}, {wire.HeaderActor, actor},
		{"If-Match", r.ifMatch}, {"If-None-Match", r.ifNoneMatch}, {wire.HeaderPrefer, r.prefer},
		{wire.HeaderEcho, newNonce()}, {wire.HeaderDeployment, re.deployment}, {wire.HeaderIndex, re.ledgerIndex.header()}, {effect.HeaderTraceparent, r.trace},
	} {
		if strings.ContainsFunc(h.value, unicode.IsControl) {
			return nil, &Error{Problem: Problem{Code: wire.InputInvalid, Status: http.StatusBadRequest,
				Detail: "client: a value with control characters cannot be sent in the header " + h.name}}
		}
		if h.value != "" {
			req.Header[h.name] = []string{h.value} // the names are canonical
		}
	}
	return req, nil
}

// isOwn reports whether an answer is that to this request. A proxy may give the answer to another request, and another caller would act
// in its attempt; other software does not know the header.
func isOwn(answer *http.Response, req *http.Request) bool {
	return slices.Equal(answer.Header[wire.HeaderEcho], req.Header[wire.HeaderEcho])
}

// readBody reads an answer's body, up to maxAnswer bytes.
func readBody(answer *http.Response) ([]byte, error) {
	switch n := answer.ContentLength; {
	case answer.StatusCode < http.StatusOK: // its body would be the connection itself, which has no deadline
		return nil, fmt.Errorf("unexpected status %d", answer.StatusCode)
	case n > maxAnswer:
		return nil, errTooLong
	case n >= 0:
		body := make([]byte, n)
		_, err := io.ReadFull(answer.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errTooLong
	}
	return body, err
}

var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)

// problemFrom reads a problem document. Any other body comes from a proxy or other software: its 4xx says that the
// request was rejected, its 5xx that the outcome is unknown. A problem that answers another request is ignored.
func (r *request) problemFrom(resp *response) error {
	var document struct {
		Problem
		Retryable *bool `json:"retryable"` // only flightd's problem documents have it
	}
	err := json.Unmarshal(resp.body, &document)
	p := document.Problem
	switch ofFlightd := err == nil && p.Code != "" && document.Retryable != nil; {
	case ofFlightd && !resp.own:
		return &effect.Unavailable{Code: "unreachable", Cause: fmt.Errorf("the answer is that to another request: %s: %.200s", p.Code, p.Detail)}
	case ofFlightd:
		p.Retryable = *document.Retryable
	default:
		if resp.status < http.StatusMultipleChoices || resp.status >= http.StatusInternalServerError || resp.status == http.StatusRequestTimeout {
			return &effect.Unavailable{Code: "unreachable", Cause: errors.New(describeForeignAnswer(resp))}
		}
		p = Problem{Code: wire.Internal, Title: http.StatusText(resp.status), Detail: describeForeignAnswer(resp)}
	}
	p.Status = resp.status
	if p.RetryAfterMS == 0 {
		if seconds, err := strconv.Atoi(resp.header.Get("Retry-After")); err == nil {
			p.RetryAfterMS = int64(seconds) * 1000
		}
	}
	return newError(p, r.key)
}

func describeForeignAnswer(resp *response) string {
	return fmt.Sprintf("answer %d from other software, not flightd: %.200q", resp.status, resp.body)
}

// decode reads an answer. Unknown fields are ignored: later versions may have added them.
func decode[T any](resp response, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	out := new(T)
	if err := wire.DecodeAnswer(resp.body, out); err != nil {
		return nil, fmt.Errorf("client: decode the server's answer: %w", err)
	}
	return out, nil
}
