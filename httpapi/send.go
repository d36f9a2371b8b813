package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// buffers are for answers: they are written out before they go back.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// keepBuffer is the greatest buffer that is kept for the next answer.
const keepBuffer = 64 << 10

// send writes an answer whose body fill appends.
func send(w http.ResponseWriter, r *http.Request, status int, contentType []string, fill func([]byte) []byte) {
	buffer := buffers.Get().(*[]byte)
	body := fill((*buffer)[:0])
	h := w.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // whoever does not hear it asks again
	}
	if cap(body) <= keepBuffer {
		*buffer = body
		buffers.Put(buffer)
	}
}

// timedWriter puts the ledger's time into an answer's header when that is written: a request that waited before must not
// carry the time at which it came.
type timedWriter struct {
	http.ResponseWriter
	now func() flight.Time
}

func (w *timedWriter) WriteHeader(status int) {
	w.Header()[wire.HeaderLedgerTime] = []string{strconv.FormatInt(int64(w.now()), 10)}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// readBody reads a request's body of at most limit bytes. What it gives belongs to the request alone.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *wire.Invalid) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if kind := r.Header.Get("Content-Type"); kind != "" && !wire.IsJSONType(kind) {
		return nil, wire.BadHeader("Content-Type", "the body must be JSON, not %.100q", kind)
	}
	if n := r.ContentLength; n >= 0 && n <= keepBuffer { // what is announced to be longer gets its room as it comes
		body := make([]byte, n)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, unread(r, err)
		}
		return body, nil
	}
	if timed, ok := w.(*timedWriter); ok {
		w = timed.ResponseWriter // the server's own, which MaxBytesReader tells to close the connection
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, unread(r, err)
	}
	return body, nil
}

// unread refuses a request of which a part did not come. It says nothing of the request as its caller wrote it: the same one may be
// taken the next time. Where this node stops, it says so.
func unread(r *http.Request, err error) *wire.Invalid {
	var stops *effect.Unavailable
	if errors.As(context.Cause(r.Context()), &stops) {
		return &wire.Invalid{Code: wire.Draining, FieldError: wire.FieldError{Detail: "this node stops, and a part of the body had not come yet"}}
	}
	bad := wire.BadField("", "the body could not be read: %v", err)
	bad.Code = wire.Incomplete
	return bad
}

func tooLarge(limit int64) *wire.Invalid {
	bad := wire.BadField("", "the body is longer than the %d bytes that this route takes", limit)
	bad.Code = wire.PayloadTooLarge
	return bad
}

// namespace is the caller's.
func namespace(r *http.Request) (string, *wire.Invalid) {
	if len(r.Header[wire.HeaderNamespace]) == 0 {
		return wire.DefaultNamespace, nil
	}
	return single(r, wire.HeaderNamespace)
}

// flightID is the flight that the path names.
func flightID(r *http.Request) (flight.ID, *wire.Invalid) {
	id, err := flight.ParseID(r.PathValue("id"))
	if err != nil {
		return id, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "a flight's id is fl_ and 26 characters of a-z and 2-7"}}
	}
	return id, nil
}

// describe writes the headers that go with a flight.
func describe(h http.Header, f *flight.Flight) {
	h[wire.HeaderFlightID] = []string{f.ID.String()}
	h[wire.HeaderState] = []string{f.State.String()}
	h["Etag"] = []string{etag(f.Version)}
	if f.State.Terminal() && f.State != flight.Expired {
		h[wire.HeaderExpires] = []string{f.ExpiresAt().At().Format(http.TimeFormat)}
	}
}

func etag(v flight.Version) string { return `"` + v.String() + `"` }

// show answers with a flight and its receipt.
func (a *api) show(w http.ResponseWriter, r *http.Request, f *flight.Flight) {
	f, body, err := a.whole(f)
	if err != nil {
		a.fail(w, r, f.Key, err)
		return
	}
	describe(w.Header(), f)
	shown := wire.FlightOf(f, body, true)
	shown.HeldUntil = wire.HoldOf(f, a.cfg.Ledger.Header(), a.cfg.Ledger.Now())
	send(w, r, http.StatusOK, typeJSON, shown.AppendJSON)
}

// whole gives a flight and the bytes of its receipt, as bytesOf does.
func (a *api) whole(f *flight.Flight) (*flight.Flight, []byte, error) {
	return a.bytesOf(f, receiptBody, a.cfg.Ledger.ReceiptBody)
}

// receiptBody is what a flight's receipt says of its body; zero where there is none.
func receiptBody(f *flight.Flight) flight.Blob {
	if f.Receipt == nil {
		return flight.Blob{}
	}
	return f.Receipt.Body
}

// bytesOf gives a flight and the bytes of one of its blobs. Where these are gone because the flight went on since it was read (its
// retention ended, it was erased or freed), it gives the flight as it is now.
func (a *api) bytesOf(f *flight.Flight, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, error) {
	for {
		b := blob(f)
		if f.State == flight.Expired || b.Kept == 0 || b.Data != nil {
			return f, b.Data, nil
		}
		body, err := read(f)
		if err == nil {
			return f, body, nil
		}
		now, unread := a.cfg.Ledger.Flight(f.ID)
		if unread != nil || now == nil || now.Version == f.Version {
			return f, nil, err
		}
		if f = now; f.State == flight.Absent {
			return f, nil, &effect.Missing{ID: f.ID}
		}
	}
}
