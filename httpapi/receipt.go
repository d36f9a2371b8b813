package httpapi

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// receipt serves GET /v1/flights/{id}/receipt: the stored bytes of the receipt's body.
func (a *api) receipt(w http.ResponseWriter, r *http.Request) {
	f, body, ok := a.findBytes(w, r, receiptBlob, a.cfg.Ledger.ReceiptBody)
	if !ok {
		return
	}
	if p := noReceiptProblem(f); p != nil {
		a.writeMissingBody(w, r, f, p)
		return
	}
	h, rec := w.Header(), f.Receipt
	h[wire.HeaderReceiptOutcome] = []string{rec.Outcome.String()}
	if rec.ExternalID != "" {
		h[wire.HeaderExternalID] = []string{url.PathEscape(rec.ExternalID)}
	}
	writeBlob(w, r, f, &rec.Body, body)
}

// input serves GET /v1/flights/{id}/input: the stored bytes of the input.
func (a *api) input(w http.ResponseWriter, r *http.Request) {
	f, body, ok := a.findBytes(w, r, func(f *flight.Flight) flight.Blob { return f.Input }, a.cfg.Ledger.Input)
	if !ok {
		return
	}
	if p := noInputProblem(f); p != nil {
		a.writeMissingBody(w, r, f, p)
		return
	}
	writeBlob(w, r, f, &f.Input, body)
}

// findBytes returns the flight in the path and the bytes of one of its blobs. If it cannot, it has answered the request
// and returns false.
func (a *api) findBytes(w http.ResponseWriter, r *http.Request, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, bool) {
	id, bad := flightID(r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return nil, nil, false
	}
	f, ok := a.findFlight(w, r, id, flight.Key{})
	if !ok {
		return nil, nil, false
	}
	f, body, err := a.loadBody(r, f, blob, read)
	if err != nil {
		a.writeError(w, r, f.Key, err)
		return nil, nil, false
	}
	return f, body, true
}

// writeMissingBody answers with the reason why a flight has no such bytes.
func (a *api) writeMissingBody(w http.ResponseWriter, r *http.Request, f *flight.Flight, p *wire.Problem) {
	setFlightHeaders(w.Header(), f)
	p.State = f.State.String()
	a.writeAndLogProblem(w, r, p, nil)
}

// writeBlob answers with the bytes of a blob. They come from a provider or a caller, so the headers keep a browser from
// rendering them as a page of this server.
func writeBlob(w http.ResponseWriter, r *http.Request, f *flight.Flight, blob *flight.Blob, body []byte) {
	h := w.Header()
	setFlightHeaders(h, f)
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Security-Policy"] = []string{"default-src 'none'; sandbox"}
	h[wire.HeaderReceiptDigest] = []string{blob.Digest.String()}
	h[wire.HeaderReceiptSize] = []string{strconv.Itoa(blob.Size)}
	if !blob.Truncated() {
		h[wire.HeaderDigest] = []string{"sha-256=" + base64.StdEncoding.EncodeToString(blob.Digest[:])}
	}
	kind := cmp.Or(blob.ContentType, "application/octet-stream")
	writeResponse(w, r, http.StatusOK, []string{kind}, func(b []byte) []byte { return append(b, body...) })
}

// loadReceiptBody is loadBody for the receipt.
func (a *api) loadReceiptBody(r *http.Request, f *flight.Flight) (*flight.Flight, []byte, error) {
	return a.loadBody(r, f, receiptBlob, a.cfg.Ledger.ReceiptBody)
}

// receiptBlob returns the body of a flight's receipt; the zero Blob if there is no receipt.
func receiptBlob(f *flight.Flight) flight.Blob {
	if f.Receipt == nil {
		return flight.Blob{}
	}
	return f.Receipt.Body
}

// loadBody returns a flight and the bytes of one of its blobs.
//
// The bytes may have been deleted after f was read: by the end of the retention, a redaction or a free. Then loadBody
// reads the flight again and returns its new state. It returns *effect.Missing if the key was freed, and the read error
// if the flight has not changed.
func (a *api) loadBody(r *http.Request, f *flight.Flight, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, error) {
	for {
		b := blob(f)
		if f.State == flight.StateExpired || b.StoredSize == 0 || b.Data != nil {
			return f, b.Data, nil
		}
		body, err := read(f)
		if err == nil {
			return f, body, nil
		}
		now, unread := a.flightOf(r, f.ID, f.Key)
		if unread != nil || now == nil || now.Version == f.Version {
			return f, nil, err
		}
		if f = now; f.State == flight.StateAbsent {
			return f, nil, &effect.Missing{ID: f.ID}
		}
	}
}

// noInputProblem returns the reason why a flight has no input; nil if it has one.
func noInputProblem(f *flight.Flight) *wire.Problem {
	switch {
	case f.State == flight.StateExpired:
		return expiredProblem(f)
	case f.Input.Digest.IsZero():
		p := newKeyProblem(wire.NotFound, f.Key, 0)
		p.Detail = "the flight was opened without an input"
		p.Hint = "the first caller sent no input, or only a fingerprint; you can still read the flight's receipt and events"
		return p
	case f.Redacted != nil && f.Input.Truncated():
		p := newKeyProblem(wire.Expired, f.Key, 0)
		p.Detail = "the input was erased on " + f.Redacted.At.AsTime().Format(wire.TimeFormat) + "; the outcome and the history are kept"
		return p
	}
	return nil
}

// expiredProblem is the problem for a flight whose retention has ended: only its tombstone is stored.
func expiredProblem(f *flight.Flight) *wire.Problem {
	p := newKeyProblem(wire.Expired, f.Key, 0)
	p.FlightID, p.Outcome = f.ID.String(), f.FinalState.String()
	if f.Receipt != nil {
		p.Digest = f.Receipt.Body.Digest.String()
	}
	return p
}

// noReceiptProblem returns the reason why a flight has no receipt; nil if it has one.
func noReceiptProblem(f *flight.Flight) *wire.Problem {
	switch {
	case f.State == flight.StateExpired:
		return expiredProblem(f)
	case f.Receipt != nil && f.Redacted != nil:
		p := newKeyProblem(wire.Expired, f.Key, 0)
		p.Detail = "the receipt's body was erased on " + f.Redacted.At.AsTime().Format(wire.TimeFormat) + "; the outcome and the history are kept"
		p.FlightID, p.Outcome, p.Digest = f.ID.String(), f.Receipt.Outcome.String(), f.Receipt.Body.Digest.String()
		return p
	case f.Receipt != nil:
		return nil
	case f.State.Terminal():
		return failedProblem(f, wire.FlightOf(f, nil, true))
	}
	p := newKeyProblem(wire.NotFound, f.Key, 0)
	p.Detail = "the flight has no receipt yet; its state is " + f.State.String()
	p.Hint = "wait for a change: GET the flight with If-None-Match and Prefer: wait=N"
	return p
}
