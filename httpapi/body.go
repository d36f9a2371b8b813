package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// A body must arrive within bodyTime, and a second later for each bodyPace bytes that have arrived: its announced
// length is not trusted. The deadline covers bodies that no handler reads, too, because the server reads their rest
// before it answers. net/http removes the deadline at the end of a body, so a request may wait for longer.
const (
	bodyTime = 10 * time.Second
	bodyPace = 64 << 10
)

type receivedKey struct{}

// WithReceived returns the context of a connection, for http.Server.ConnContext. received is called each time a request
// has arrived completely, by the goroutine that serves the request.
func WithReceived(ctx context.Context, received func()) context.Context {
	return context.WithValue(ctx, receivedKey{}, received)
}

func markReceived(r *http.Request) {
	if received, ok := r.Context().Value(receivedKey{}).(func()); ok {
		received()
	}
}

// awaitBody sets the deadline of each request's body. A request without a body has arrived completely.
func awaitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			markReceived(r)
		} else {
			setReadDeadline(w, r, time.Now().Add(bodyTime))
		}
		next.ServeHTTP(w, r)
	})
}

// setReadDeadline sets the deadline for reading the rest of a request.
//
// A stopping node cancels all requests and then lets all reads fail. If that was before the new deadline was set, reads
// have to fail again: the stop must not wait for a half-sent request.
func setReadDeadline(w http.ResponseWriter, r *http.Request, at time.Time) {
	ctrl := http.NewResponseController(w)
	_ = ctrl.SetReadDeadline(at) // fails only for writers of tests
	if r.Context().Err() != nil {
		_ = ctrl.SetReadDeadline(time.Unix(1, 0))
	}
}

// carriesReport reports whether a body with this limit is a report, a verification or a resolution. All other bodies of
// more than bodyPace bytes are new work.
func carriesReport(limit int64) bool { return limit == wire.MaxReportBody }

// readBody reads a request's body of at most limit bytes into a buffer that only this request uses. Memory for a long
// body is taken as it arrives, and given back when the request ends.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *wire.Invalid) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && (!wire.IsJSONType(kind) || hasOtherCharset(kind)) {
		return nil, unsupportedType(kind)
	}
	body, err := readAll(w, r, limit)
	return body, bodyProblem(r, limit, err)
}

// bodyProblem returns the problem for the error of reading a body, or nil if the whole body has arrived.
func bodyProblem(r *http.Request, limit int64, err error) *wire.Invalid {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return tooLarge(limit)
	case errors.Is(err, errBodyMemory):
		code := wire.RateLimited
		if carriesReport(limit) { // its callers expect that it is never answered with that code
			code = wire.NoLeader
		}
		return &wire.Invalid{Code: code, FieldError: wire.FieldError{Detail: err.Error()}}
	case err != nil:
		return incompleteBody(r, err)
	case r.ContentLength != 0:
		markReceived(r)
	}
	return nil
}

// hashBody reads a body of any type. It keeps only the beginning that the ledger stores, so its memory is not counted.
func hashBody(w http.ResponseWriter, r *http.Request, limit int64) (b wire.Body, bad *wire.Invalid) {
	if r.ContentLength > limit {
		return b, tooLarge(limit)
	}
	sum := sha256.New()
	body := io.TeeReader(pace(w, r, limit, false), sum)
	kept, err := io.ReadAll(io.LimitReader(body, flight.MaxReceiptBody))
	rest := int64(0)
	if err == nil {
		rest, err = io.Copy(io.Discard, body)
	}
	if b.Base64 = kept; rest > 0 {
		b.Truncated, b.Size, b.Digest = true, int64(len(kept))+rest, flight.Digest(sum.Sum(nil)).String()
	}
	return b, bodyProblem(r, limit, err)
}

func readAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if n := r.ContentLength; n >= 0 && n <= min(maxPooledBuffer, bodyPace) { // a longer body is buffered as it arrives
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	return io.ReadAll(pace(w, r, limit, true))
}

// pace returns a reader of the request's body with a deadline that moves as the body arrives. With count, the memory of the body is
// counted.
func pace(w http.ResponseWriter, r *http.Request, limit int64, count bool) io.Reader {
	paced := &pacedBody{ReadCloser: r.Body, request: r, writer: w, start: time.Now()}
	if answer, ok := w.(*answerWriter); ok {
		if count {
			paced.share = &answer.share
		}
		if !carriesReport(limit) {
			answer.share.part = answer.share.memory.newWork
		}
		w = answer.ResponseWriter // MaxBytesReader must see the server's own writer to close the connection
	}
	return http.MaxBytesReader(w, paced, limit)
}

// pacedBody is a body whose deadline moves as the body arrives, and which takes memory for each bodyPace bytes.
type pacedBody struct {
	io.ReadCloser
	request *http.Request
	writer  http.ResponseWriter
	start   time.Time
	arrived int64         // bytes
	share   *bodyShare    // nil: memory is not counted
	waited  time.Duration // for memory, bodyTime at most; the deadline moves by it
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	paces, rest := b.arrived/bodyPace, b.arrived%bodyPace
	if rest == 0 && paces > 0 {
		if err := b.takeMemory(); err != nil {
			return 0, err
		}
		setReadDeadline(b.writer, b.request, b.start.Add(b.waited+bodyTime+time.Duration(paces)*time.Second))
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), bodyPace-rest)])
	b.arrived += int64(n)
	return n, err
}

// takeMemory takes memory for the next bodyPace bytes.
func (b *pacedBody) takeMemory() error {
	switch {
	case b.share == nil:
		return nil
	case b.share.part != nil:
		return b.share.takeFromPart()
	}
	began := time.Now()
	err := b.share.takeForReport(b.request.Context(), bodyTime-b.waited)
	b.waited += time.Since(began)
	return err
}

// incompleteBody is the error for a body that did not arrive completely. It does not judge the request: the same
// request may succeed when it is sent again. If the body was interrupted because this node stops, the code is draining.
func incompleteBody(r *http.Request, err error) *wire.Invalid {
	if errors.As(context.Cause(r.Context()), new(*effect.Unavailable)) {
		return &wire.Invalid{Code: wire.Draining, FieldError: wire.FieldError{Detail: "this node is stopping, and the request body had not arrived completely"}}
	}
	bad := wire.BadField("", "the request body did not arrive completely: %v", err)
	bad.Code = wire.RequestIncomplete
	return bad
}
