package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// router wraps the handlers in what is done with every request.
type router struct {
	*responder
	ids           *requestIDs
	bodies        *bodyMemory
	answers       *answerMemory
	deployment    string
	ledgerBehind  func(ctx context.Context, position wire.Index) (bool, error)  // Cluster.LedgerBehind
	replaceAnswer func(ctx context.Context, status int, current bool) wire.Code // Cluster.ReplaceAnswer
}

func newRouter(cfg *Config) *router {
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	sc := &scope{ledger: cfg.Ledger, tokens: cfg.Callers.Auth, tokenTime: cfg.Callers.TokenTime, follower: cfg.Cluster.Follower, traces: cfg.Callers.Traces}
	if sc.tokenTime == nil && cfg.Ledger != nil {
		sc.tokenTime = cfg.Ledger.Now
	}
	memory := cmp.Or(cfg.Callers.bodyMemory, bodyMemorySize())
	return &router{responder: &responder{sc, slog.New(auth.RedactingHandler(log.Handler()))}, ids: newRequestIDs(),
		bodies: newBodyMemory(memory), answers: &answerMemory{tokens: cfg.Callers.Auth != nil, size: memory, of: make(map[string]int)}, deployment: cfg.About.Version.Deployment, ledgerBehind: cfg.Cluster.LedgerBehind, replaceAnswer: cfg.Cluster.ReplaceAnswer}
}

// handler returns the handler of a mux that has all routes; with loopbackOnly they are wrapped in LoopbackOnly.
func (ro *router) handler(mux *http.ServeMux, loopbackOnly bool) http.Handler {
	mux.HandleFunc("/", ro.notFound(mux))
	if loopbackOnly {
		return ro.withRequestID(LoopbackOnly(mux))
	}
	return ro.withRequestID(mux)
}

// withAccess rejects requests without a token that the route needs. A rejection says nothing about any flight.
func (ro *router) withAccess(need access, next http.HandlerFunc) http.HandlerFunc {
	if ro.tokens == nil || need.public {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		c, bad := ro.authenticate(r, need)
		if bad == nil {
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
			if !c.AllNamespaces() { // also on routes that do not read the header
				_, bad = namespace(r)
			}
		}
		if bad == nil {
			bad = rejectSecrets(r)
		}
		if bad != nil {
			ro.writeError(w, r, bad)
			return
		}
		next(w, r)
	}
}

// withoutQuery wraps a route that has no query parameters. It rejects every parameter: if dry_run were ignored on an open,
// the caller would act although it asked for a dry run.
func withoutQuery(route handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if bad := rejectParameters(r); bad != nil {
			return bad
		}
		return route(w, r)
	}
}

// withRequestID sets the request id and the headers that every answer has, and rejects paths that ServeMux would
// redirect. If there is a ledger, the answer carries its time.
func (ro *router) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h[wire.HeaderRequestID] = []string{ro.ids.forRequest(r)}
		h["Cache-Control"] = noStore
		if ro.ledger != nil {
			answer := &answerWriter{ResponseWriter: w, request: r, replaceAnswer: ro.replaceAnswer, ledger: ro.ledger, timeless: ro.follower != nil, share: bodyShare{memory: ro.bodies}, answers: ro.answers}
			defer answer.share.release()
			w = answer
		}
		if bad := setEcho(h, r); bad != nil {
			ro.writeError(w, r, bad)
			return
		}
		if !cleanPath(r) {
			ro.writeError(w, r, &wire.Invalid{Code: wire.NotFound,
				FieldError: wire.FieldError{Detail: `the path has an empty, "." or ".." segment`}})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// maxEcho is the longest value of the header Flightd-Echo, in bytes.
const maxEcho = 64

// setEcho repeats the header by which a client recognizes the answer to its request.
func setEcho(answer http.Header, r *http.Request) (bad *wire.Invalid) {
	given := r.Header[wire.HeaderEcho]
	if given == nil {
		return nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > maxEcho {
		detail := fmt.Sprintf("must be one value of 1 to %d bytes", maxEcho)
		return &wire.Invalid{Code: wire.InputInvalid, Hint: "send a random value, another one with each request, or leave the header out",
			FieldError: wire.FieldError{Header: wire.HeaderEcho, Detail: detail}}
	}
	answer[wire.HeaderEcho] = given
	return nil
}

// cleanPath reports whether ServeMux serves the path unchanged. ServeMux redirects every other path to its cleaned
// form, which could name another key than the caller wrote.
func cleanPath(r *http.Request) bool {
	path := r.URL.Path
	if path == "" || path[0] != '/' {
		return false
	}
	return path == "/" || !strings.Contains(path, "//") && !strings.HasSuffix(path, "/") && !hasDots(path)
}

func hasDots(path string) bool {
	if !strings.Contains(path, "/.") {
		return false
	}
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// deploymentIndependent are the routes that describe the server only, and so answer callers of any deployment.
var deploymentIndependent = []string{"GET /livez", "GET /readyz", "GET /version"}

// withDeploymentCheck rejects requests that name another deployment. This deployment's ledger does not contain the
// effects of the other one, so it would let the caller repeat them.
func (ro *router) withDeploymentCheck(pattern string, route http.HandlerFunc) http.HandlerFunc {
	if slices.Contains(deploymentIndependent, pattern) {
		return route
	}
	return func(w http.ResponseWriter, r *http.Request) {
		named, bad := singleHeader(r, wire.HeaderDeployment)
		switch {
		case bad != nil:
			ro.writeError(w, r, bad)
		case named != "" && named != ro.deployment:
			p := newProblem(wire.WrongDeployment)
			p.Detail = fmt.Sprintf("the request names deployment %.100q, but this server belongs to %q", named, ro.deployment)
			if id, bad := flightID(r); bad == nil {
				p.FlightID = id.String()
			}
			writeProblem(w, r, p)
			ro.logProblem(r, p, nil)
		default:
			if named == "" || !ro.rejectLedgerBehind(w, r) {
				route(w, r)
			}
		}
	}
}

// rejectLedgerBehind answers a request of a caller who has seen a newer ledger than this one, and reports whether it did.
func (ro *router) rejectLedgerBehind(w http.ResponseWriter, r *http.Request) bool {
	text, bad := singleHeader(r, wire.HeaderIndex)
	if bad != nil || text == "" || ro.ledgerBehind == nil {
		if bad != nil {
			ro.writeError(w, r, bad)
		}
		return bad != nil
	}
	seen, err := wire.ParseIndex(text)
	if err != nil {
		ro.writeError(w, r, &wire.Invalid{Code: wire.InputInvalid, Hint: "send the value that an answer had, unchanged, or leave the header out",
			FieldError: wire.FieldError{Header: wire.HeaderIndex, Detail: err.Error()}})
		return true
	}
	h := ro.ledger.Header()
	own := indexOf(&h)
	if !seen.After(own) {
		return false
	}
	behind, err := ro.ledgerBehind(r.Context(), seen)
	switch {
	case err != nil:
		ro.writeError(w, r, err)
	case behind:
		p := newProblem(wire.LedgerBehind)
		p.Detail = fmt.Sprintf("the ledger is at %s, and the caller was told %s", own, seen)
		writeProblem(w, r, p)
	}
	return behind || err != nil
}

// indexOf returns the position of the ledger.
func indexOf(h *flight.Header) wire.Index {
	return wire.Index{Epoch: h.StoreEpoch, Entry: h.Version.Index}
}

// requestIDs assigns an id to each request, which is in the answer and in the log.
type requestIDs struct {
	prefix string        // random, one per process
	count  atomic.Uint64 // requests so far
}

func newRequestIDs() *requestIDs {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return &requestIDs{prefix: "req_" + hex.EncodeToString(b[:]) + "-"}
}

// forRequest returns the caller's request id if it is valid, else a new one.
func (ids *requestIDs) forRequest(r *http.Request) string {
	if given := r.Header[wire.HeaderRequestID]; len(given) == 1 && isValidRequestID(given[0]) {
		return given[0]
	}
	return ids.prefix + strconv.FormatUint(ids.count.Add(1), 36)
}

func isValidRequestID(s string) bool {
	if s == "" || len(s) > 64 || auth.ContainsSecret(s) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' {
			continue
		}
		return false
	}
	return true
}

// traceID returns the trace id of the traceparent header, or "" if there is none, or more than one. It is called only when
// a problem is written or logged, so successful requests do not pay for it.
func traceID(r *http.Request) string {
	if given := r.Header[effect.HeaderTraceparent]; len(given) == 1 {
		return effect.TraceID(given[0])
	}
	return ""
}

// traceOf returns the trace to store with what the request opens or submits; zero: none.
func (sc *scope) traceOf(r *http.Request) flight.Trace {
	if given := r.Header[effect.HeaderTraceparent]; sc.traces && len(given) == 1 {
		return effect.SampledTrace(given[0])
	}
	return flight.Trace{}
}

// answerWriter sets the headers with the ledger's time and position when the answer is written, so that a request that waited
// does not carry those of its arrival. It has the request's share of the memory for bodies.
//
// It asks Cluster.ReplaceAnswer before it writes the status. If a problem takes the place of the answer, nothing else of it is written.
type answerWriter struct {
	http.ResponseWriter
	request       *http.Request
	place         Place
	replaceAnswer func(ctx context.Context, status int, current bool) wire.Code // nil: every answer is given
	begun         bool                                                          // the status was written
	replaced      bool                                                          // by a problem
	ledger        LedgerState
	timeless      bool // a follower's time is that of its last entry, and callers would take it for now
	share         bodyShare
	answers       *answerMemory
}

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	if w.replaceAnswer != nil && w.place != ThisNode {
		if code := w.replaceAnswer(w.request.Context(), status, w.place.isCurrent(status)); code != "" {
			w.replaced = true
			w.replace(code)
			return
		}
	}
	header := w.ledger.Header()
	values := []string{strconv.FormatInt(int64(w.ledger.Now()), 10), indexOf(&header).String()}
	if w.Header()[wire.HeaderIndex] = values[1:]; !w.timeless {
		w.Header()[wire.HeaderLedgerTime] = values[:1:1]
	}
	w.ResponseWriter.WriteHeader(status)
}

// replace writes a problem with a code, without the headers of the answer.
func (w *answerWriter) replace(code wire.Code) {
	header := w.Header()
	for name := range header {
		if name != wire.HeaderNode && name != wire.HeaderRequestID && name != wire.HeaderEcho {
			delete(header, name)
		}
	}
	Problem(code, "the node that took the request does not lead the ledger").ServeHTTP(w.ResponseWriter, w.request)
}

// errReplaced ends a backup or a stream after a problem has replaced its answer.
var errReplaced = errors.New("the answer was replaced")

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.replaced {
		return 0, errReplaced
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the underlying writer.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// notFound answers requests that match no route: 405 if the path has other methods, else 404.
func (ro *router) notFound(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range [...]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
			other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
			if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
				allowed = append(allowed, method)
			}
		}
		bad := &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "no route has this path"},
			Hint: "/openapi.json describes every path; flightd --help lists the commands"}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			bad = &wire.Invalid{Code: wire.MethodNotAllowed, FieldError: wire.FieldError{Detail: "this path does not support " + r.Method}}
		}
		ro.writeError(w, r, bad)
	}
}

// Starting returns a handler that answers every request with the problem no_leader. A node serves it until its ledger
// is open and New can be called.
func Starting() http.Handler { return Problem(wire.NoLeader, "this node is starting") }

// Problem returns a handler that answers every request with a problem of the code, whose detail says why.
func Problem(code wire.Code, detail string) http.Handler {
	ids := newRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if h.Get(wire.HeaderRequestID) == "" {
			h[wire.HeaderRequestID] = []string{ids.forRequest(r)}
		}
		h["Cache-Control"] = noStore
		p := newProblem(code)
		p.Detail = detail
		writeProblem(w, r, p)
	})
}
