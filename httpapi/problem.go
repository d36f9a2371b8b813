package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/strictjson"
)

const problemPath = "/problems/"

// Retry-After where the error has no better value.
const (
	defaultRetryAfter  = time.Second
	operatorRetryAfter = 30 * time.Second // if a person must decide first
)

// newProblem returns the problem document of a code.
func newProblem(code wire.Code) *wire.Problem {
	class, known := code.Class()
	if !known {
		code = wire.Internal
		class, _ = code.Class()
	}
	return &wire.Problem{Type: problemPath + string(code), Title: class.Title, Status: class.Status, Code: code,
		Retryable: class.Retryable, Hint: class.Hint}
}

// problemOf maps an error to its problem. No other code does.
func problemOf(err error) *wire.Problem {
	var (
		invalid     *wire.Invalid
		field       *flight.InvalidError
		tooMany     *effect.TooMany
		inUse       *effect.SessionInUse
		quota       *effect.QuotaExceeded
		limited     *auth.RateLimited
		unavailable *effect.Unavailable
	)
	switch p := problemOfKey(err); {
	case errors.As(err, &invalid):
		return problemOfInvalid(invalid)
	case errors.As(err, &field):
		return problemOfInvalid(wire.BadField("/"+field.Field, "%s", field.Detail))
	case p != nil:
		return p
	case errors.As(err, &tooMany):
		return withDetail(newKeyProblem(wire.TooManyOpen, tooMany.Key, tooMany.RetryAfter), tooMany.Limit)
	case errors.As(err, &quota):
		return withDetail(newKeyProblem(wire.QuotaExceeded, quota.Key, quota.RetryAfter), quota.Limit)
	case errors.As(err, &limited):
		return withDetail(newKeyProblem(wire.RateLimited, flight.Key{}, limited.RetryAfter), limited.Limit)
	case errors.As(err, &inUse):
		return withDetail(newProblem(wire.SessionInUse), fmt.Sprintf("the session has %d open attempts", inUse.Open))
	case errors.As(err, &unavailable):
		return problemOfUnavailable(unavailable)
	case errors.Is(err, effect.ErrClosed):
		return newKeyProblem(wire.Draining, flight.Key{}, defaultRetryAfter)
	case errors.Is(err, effect.ErrLeaseLost):
		return newKeyProblem(wire.LeaseLost, flight.Key{}, 0)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newKeyProblem(wire.NoLeader, flight.Key{}, defaultRetryAfter)
	}
	return withDetail(newKeyProblem(wire.Internal, flight.Key{}, defaultRetryAfter), "the server's log has the cause, under this request id")
}

// problemOfKey is problemOf for the errors about the flight of a key; nil for every other error.
func problemOfKey(err error) *wire.Problem {
	var (
		conflict    *effect.Conflict
		doubt       *effect.InDoubt
		busy        *effect.Busy
		unapproved  *effect.Unapproved
		expired     *effect.Expired
		fenced      *effect.Fenced
		leaseLost   *effect.LeaseLost
		missing     *effect.Missing
		openExpired *effect.OpenExpired
	)
	switch {
	case errors.As(err, &conflict):
		return problemOfConflict(conflict)
	case errors.As(err, &doubt):
		p := withDetail(newKeyProblem(wire.InDoubt, doubt.Key, operatorRetryAfter), doubt.Cause)
		p.Version, p.State, p.Proposed = formatVersion(doubt.Version), flight.StateInDoubt.String(), &doubt.Proposed
		if p.Key != "" {
			p.Hint = strings.Replace(p.Hint, "KEY", p.Key, 1) // so that the command can be copied
		}
		return p
	case errors.As(err, &busy):
		p := newKeyProblem(wire.InFlight, busy.Key, max(busy.RetryAfter, time.Millisecond))
		p.Detail, p.State, p.Proposed = "another caller's attempt is still open, and the wait has ended", busy.State.String(), &busy.Proposed
		return p
	case errors.As(err, &unapproved):
		p := newKeyProblem(wire.ApprovalPending, unapproved.Key, operatorRetryAfter)
		p.State = flight.StateAwaitingApproval.String()
		return p
	case errors.As(err, &expired):
		p := newKeyProblem(wire.Expired, expired.Key, 0)
		p.State, p.Outcome = flight.StateExpired.String(), expired.Outcome.String()
		if !expired.Digest.IsZero() {
			p.Digest = expired.Digest.String()
		}
		return p
	case errors.As(err, &fenced):
		return newKeyProblem(wire.Fenced, fenced.Key, defaultRetryAfter)
	case errors.As(err, &leaseLost):
		return newKeyProblem(wire.LeaseLost, leaseLost.Key, 0)
	case errors.As(err, &missing):
		p := withDetail(newProblem(wire.NotFound), "this key was never used, or it was freed")
		p.FlightID = missing.ID.String()
		return p
	case errors.As(err, &openExpired):
		p := newKeyProblem(wire.OpenExpired, openExpired.Key, 0)
		p.Detail, p.LedgerTime = "the ledger's time is "+openExpired.LedgerTime.AsTime().Format(wire.TimeFormat), int64(openExpired.LedgerTime)
		return p
	}
	return nil
}

func withDetail(p *wire.Problem, detail string) *wire.Problem {
	p.Detail = detail
	return p
}

func newKeyProblem(code wire.Code, key flight.Key, retryAfter time.Duration) *wire.Problem {
	p := newProblem(code)
	if !key.IsZero() {
		p.Key, p.FlightID = key.String(), key.FlightID().String()
	}
	p.RetryAfterMS = retryAfter.Milliseconds()
	return p
}

func problemOfInvalid(bad *wire.Invalid) *wire.Problem {
	p := newProblem(bad.Code)
	p.Detail = bad.Error()
	if bad.Hint != "" {
		p.Hint = bad.Hint
	}
	if bad.Code != wire.NotFound && bad.Code != wire.MethodNotAllowed {
		p.Errors = []wire.FieldError{bad.FieldError}
	}
	return p
}

func problemOfConflict(c *effect.Conflict) *wire.Problem {
	p := newKeyProblem(wire.Conflict, c.Key, 0)
	p.Detail = "the key was first used with another input"
	for _, field := range c.Fields {
		p.Errors = append(p.Errors, wire.FieldError{Pointer: "/input" + field, Detail: "differs from the first input"})
	}
	return p
}

func problemOfUnavailable(e *effect.Unavailable) *wire.Problem {
	code := wire.Code(e.Code)
	switch code {
	case wire.NoLeader, wire.LeaderLost, wire.LedgerBehind, wire.LeaseUnavailable, wire.Draining, wire.ReportPending, wire.Reconciling, wire.CallbackEarly, wire.CallbacksOff:
	default:
		code = wire.NoLeader
	}
	p := newKeyProblem(code, flight.Key{}, defaultRetryAfter)
	if !p.Retryable {
		p.RetryAfterMS = 0
	}
	if e.Cause != nil {
		p.Detail = e.Cause.Error()
	}
	return p
}

func formatVersion(v flight.Version) string {
	if v == (flight.Version{}) {
		return ""
	}
	return v.String()
}

// responder writes answers and problems. The handlers of all subjects share it.
type responder struct {
	*scope
	log *slog.Logger
}

// withErrors returns the handler of a route. It answers with the problem of the error that the route returns.
func (re *responder) withErrors(route handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := route(w, r); err != nil {
			re.writeError(w, r, err)
		}
	}
}

// named is an error whose problem names what the request was about. Each field may be empty. With a nonce or a session, a caller
// that was given the answer to another request concludes nothing from it.
type named struct {
	error
	key            flight.Key
	nonce, session string
}

func (n named) Unwrap() error { return n.error }

// about returns an error whose problem names the key of the request.
func about(key flight.Key, err error) error { return named{error: err, key: key} }

// aboutOpen returns an error whose problem names the key and the nonce of the request.
func aboutOpen(key flight.Key, nonce string, err error) error {
	return named{error: err, key: key, nonce: nonce}
}

// problemError is a problem that a handler has made itself.
type problemError struct {
	problem *wire.Problem
	cause   error // for the log; nil: none
}

func (e problemError) Error() string { return string(e.problem.Code) + ": " + e.problem.Detail }

// writeError answers with the problem of an error.
func (re *responder) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if made, ok := errors.AsType[problemError](err); ok {
		re.writeAndLogProblem(w, r, made.problem, made.cause)
		return
	}
	p := namedProblem(r, err)
	hideMissing(r, p, err)
	re.writeAndLogProblem(w, r, p, err)
}

// namedProblem is problemOf with the names of a named error.
func namedProblem(r *http.Request, err error) *wire.Problem {
	var subject named
	errors.As(err, &subject)
	if cause := context.Cause(r.Context()); cause != nil && errors.Is(err, context.Canceled) {
		err = cause // why the request was canceled: a stopping node sets effect.Unavailable
	}
	p := problemOf(err)
	p.Nonce, p.Session = subject.nonce, subject.session
	if p.FlightID == "" && !subject.key.IsZero() && p.Code != wire.Unauthenticated {
		p.Key, p.FlightID = subject.key.String(), subject.key.FlightID().String()
	}
	return p
}

// writeAndLogProblem answers with a problem and logs it; cause may be nil. A problem without a flight id gets the one
// in the request's path. The rejection of a credential says nothing about a flight.
func (re *responder) writeAndLogProblem(w http.ResponseWriter, r *http.Request, p *wire.Problem, cause error) {
	if p.Code != wire.Unauthenticated && p.Code != wire.Forbidden {
		if id, bad := flightID(r); bad == nil && p.FlightID == "" {
			p.FlightID = id.String()
		}
		if p.State == "" {
			p.State = re.stateOf(r, p)
		}
	}
	writeProblem(w, r, p)
	re.logProblem(r, p, cause)
}

// stateOf returns the state of a problem's flight on this node, or "" if the problem has no flight. For a token of one
// namespace it reads no flight unless the problem has a key of that namespace: the time of a read tells whether a flight
// exists.
func (re *responder) stateOf(r *http.Request, p *wire.Problem) string {
	id, err := flight.ParseID(p.FlightID)
	if err != nil {
		return ""
	}
	key, _ := flight.ParseStoredKey(p.Key) // the zero key if the problem has none
	if c := boundCaller(r); c != nil && key.Namespace() != c.Namespace {
		return ""
	}
	if f, err := re.flightOf(r, id, key); err == nil && f != nil {
		return f.State.String()
	}
	return flight.StateAbsent.String()
}

// writeProblem writes a problem document and the headers that belong to its code.
func writeProblem(w http.ResponseWriter, r *http.Request, p *wire.Problem) {
	h := w.Header()
	_ = setEcho(h, r) // an invalid value was rejected, perhaps by this problem
	p.RequestID, p.TraceID = h.Get(wire.HeaderRequestID), traceID(r)
	if p.FlightID != "" {
		h[wire.HeaderFlightID] = []string{p.FlightID}
	}
	if p.State != "" {
		h[wire.HeaderState] = []string{p.State}
	}
	if p.Version != "" {
		h.Set("ETag", `"`+p.Version+`"`)
	}
	if p.RetryAfterMS == 0 && (p.Status == http.StatusConflict || p.Retryable) {
		p.RetryAfterMS = defaultRetryAfter.Milliseconds()
	}
	if p.RetryAfterMS > 0 {
		h.Set(wire.HeaderRetryAfter, strconv.FormatInt((p.RetryAfterMS+999)/1000, 10))
	}
	if p.Status == http.StatusConflict && !p.Retryable {
		h[wire.HeaderStripeRetry], h[wire.HeaderShouldRetry] = headerFalse, headerFalse
	}
	if p.Status == http.StatusUnauthorized {
		h[wire.HeaderAuthenticate] = []string{"Bearer"}
	}
	writeResponse(w, r, p.Status, typeProblem, func(b []byte) []byte {
		body := strictjson.Append(b, p)
		if text := string(body[len(b):]); auth.ContainsSecret(text) { // the request had a secret where the problem repeats it
			body = append(body[:len(b)], auth.Redact(text)...)
		}
		return body
	})
}

// logProblem logs a request that was answered with a problem: at level error if flightd failed, else at level debug.
func (re *responder) logProblem(r *http.Request, p *wire.Problem, cause error) {
	level, message := slog.LevelDebug, "httpapi: request rejected"
	if p.Code == wire.Internal {
		level, message = slog.LevelError, "httpapi: request failed"
	}
	if !re.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []any{"request_id", p.RequestID, "method", r.Method, "path", r.URL.Path, "status", p.Status, "code", string(p.Code)}
	if p.TraceID != "" {
		attrs = append(attrs, "trace_id", p.TraceID)
	}
	if key := re.keyOfProblem(r, p); key != "" {
		attrs = append(attrs, "key", key)
	}
	if cause != nil {
		attrs = append(attrs, "error", cause)
	}
	re.log.Log(r.Context(), level, message, attrs...)
}

// keyOfProblem returns the key of the problem, or else of the flight in the request's path, or "" if neither is known, or
// if the token belongs to one namespace: see stateOf.
func (re *responder) keyOfProblem(r *http.Request, p *wire.Problem) string {
	if p.Key != "" || boundCaller(r) != nil {
		return p.Key
	}
	id, err := flight.ParseID(r.PathValue("id"))
	if err != nil {
		return ""
	}
	if key := re.keyOf(r, id); !key.IsZero() {
		return key.String()
	}
	return ""
}
