package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// buffers holds buffers for response bodies. writeResponse returns a buffer only after its bytes were written.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// maxPooledBuffer is the capacity above which a buffer is not reused.
const maxPooledBuffer = 64 << 10

// writeResponse writes an answer; fill appends its body.
func writeResponse(w http.ResponseWriter, r *http.Request, status int, contentType []string, fill func([]byte) []byte) {
	buffer := buffers.Get().(*[]byte)
	body := fill((*buffer)[:0])
	release, ok := holdAnswer(w, r, len(body))
	if !ok {
		writeProblem(w, r, answerProblem(r))
		return
	}
	defer release()
	h := w.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a caller that misses the answer repeats its request
	}
	if cap(body) <= maxPooledBuffer {
		*buffer = body
		buffers.Put(buffer)
	}
}

// holdAnswer counts the n bytes of an answer, if they are more than maxPooledBuffer, until the caller calls release. It returns
// false if there is no memory for them.
func holdAnswer(w http.ResponseWriter, r *http.Request, n int) (release func(), ok bool) {
	if n <= maxPooledBuffer {
		return func() {}, true
	}
	return countAnswer(w, r, n)
}

// countAnswer counts n bytes of an answer, as holdAnswer does, even if they are few.
func countAnswer(w http.ResponseWriter, r *http.Request, n int) (release func(), ok bool) {
	answer, counted := w.(*answerWriter)
	if !counted {
		return func() {}, true
	}
	ns := answer.answers.namespace(r)
	return func() { answer.answers.release(ns, n) }, answer.answers.take(ns, n)
}

// answerProblem is the answer to a caller whose answer found no memory. Callers that report expect that they never get rate_limited.
func answerProblem(r *http.Request) *wire.Problem {
	p := newProblem(wire.RateLimited)
	if strings.HasSuffix(r.URL.Path, "/report") || strings.HasSuffix(r.URL.Path, "/verification") {
		p = newProblem(wire.NoLeader)
	}
	p.Detail = "this node has no memory for the answer: callers of the namespace have too many large answers that they have not read"
	p.Hint = "read the answers of the requests before this one, or ask for less in each, then repeat the request"
	return p
}

// setFlightHeaders sets the headers that describe a flight.
func setFlightHeaders(h http.Header, f *flight.Flight) {
	h[wire.HeaderFlightID] = []string{f.ID.String()}
	h[wire.HeaderState] = []string{f.State.String()}
	h["Etag"] = []string{etag(f.Version)}
	if f.State.Terminal() && f.State != flight.StateExpired {
		h[wire.HeaderIdempotencyExpires] = []string{f.ExpiresAt().AsTime().Format(http.TimeFormat)}
	}
}

func etag(v flight.Version) string { return `"` + v.String() + `"` }

// writeJSON writes v as JSON. It returns nil, so that a handler can end with it.
func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	writeResponse(w, r, status, typeJSON, func(b []byte) []byte { return strictjson.Append(b, v) })
	return nil
}
