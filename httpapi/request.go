package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// requestIDs names requests, so that a person finds in the log what a caller was told.
type requestIDs struct {
	boot  string        // of this process
	count atomic.Uint64 // of requests
}

func newRequestIDs() *requestIDs {
	var b [5]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the program first
	return &requestIDs{boot: "req_" + hex.EncodeToString(b[:]) + "-"}
}

// of is the caller's, where it sent one that is harmless to repeat, else a new one.
func (ids *requestIDs) of(r *http.Request) string {
	if given := r.Header[wire.HeaderRequestID]; len(given) == 1 && harmless(given[0]) {
		return given[0]
	}
	return ids.boot + strconv.FormatUint(ids.count.Add(1), 36)
}

func harmless(s string) bool {
	if s == "" || len(s) > 64 {
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

// traceID is that of the request's traceparent; "" where it has none, or more than one. It is asked for where something
// is worth telling, so that other requests do not pay for it.
func traceID(r *http.Request) string {
	if given := r.Header[effect.HeaderTraceparent]; len(given) == 1 {
		return effect.TraceID(given[0])
	}
	return ""
}

// bare is a route without parameters. One that is there may be what its caller counts on: passed over, an open with
// dry_run would act.
func (a *api) bare(route http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if bad := noParameters(r); bad != nil {
			a.refuse(w, r, bad)
			return
		}
		route(w, r)
	}
}

func noParameters(r *http.Request) *wire.Invalid {
	if r.URL.RawQuery == "" {
		return nil
	}
	params, bad := parameters(r)
	if bad != nil || len(params) == 0 {
		return bad
	}
	bad = wire.BadParameter(slices.Min(slices.Collect(maps.Keys(params))), "this route takes no parameters")
	bad.Hint = "what a request says stands in its path, its headers and its body"
	return bad
}

// parameters reads the query of a request.
func parameters(r *http.Request) (url.Values, *wire.Invalid) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, wire.BadParameter("query", "the query cannot be read: %v", err)
	}
	return params, nil
}

// single is a header that may stand once; "" where there is none. Of two nobody can say which one was meant.
func single(r *http.Request, name string) (string, *wire.Invalid) {
	switch given := r.Header[name]; len(given) {
	case 0:
		return "", nil
	case 1:
		return given[0], nil
	}
	return "", wire.BadHeader(name, "duplicate header")
}

// note writes down that a request ended in a problem: what flightd is to blame for as an error, the rest for those who
// want to see it.
func (a *api) note(r *http.Request, p *wire.Problem, why error) {
	level, what := slog.LevelDebug, "httpapi: a request was refused"
	if p.Code == wire.Internal {
		level, what = slog.LevelError, "httpapi: a request failed"
	}
	if !a.log.Enabled(r.Context(), level) {
		return
	}
	attrs := []any{"request_id", p.RequestID, "method", r.Method, "path", r.URL.Path, "status", p.Status, "code", string(p.Code)}
	if p.TraceID != "" {
		attrs = append(attrs, "trace_id", p.TraceID)
	}
	if key := a.keyFor(r, p); key != "" {
		attrs = append(attrs, "key", key)
	}
	if why != nil {
		attrs = append(attrs, "error", why)
	}
	a.log.Log(r.Context(), level, what, attrs...)
}

// keyFor is the key that a problem is about: that of the problem, or of the flight that the path names.
func (a *api) keyFor(r *http.Request, p *wire.Problem) string {
	if p.Key != "" {
		return p.Key
	}
	id, err := flight.ParseID(r.PathValue("id"))
	if err != nil {
		return ""
	}
	if key := a.keyOf(id); !key.IsZero() {
		return key.String()
	}
	return ""
}

// Starting answers every request with a problem that says that the node is not ready yet. It is for the time before
// there is anything that New could be given.
func Starting() http.Handler {
	ids := newRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h[wire.HeaderRequestID] = []string{ids.of(r)}
		h["Cache-Control"] = noStore
		p := newProblem(wire.NoLeader)
		p.Detail = "this node is starting"
		writeProblem(w, r, p)
	})
}
