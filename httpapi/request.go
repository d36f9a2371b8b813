package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
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
