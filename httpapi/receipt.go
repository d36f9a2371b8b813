package httpapi

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// receipt serves GET /v1/flights/{id}/receipt: the stored bytes of the receipt's body.
func (fr *flightRoutes) receipt(w http.ResponseWriter, r *http.Request) error {
	f, body, err := fr.findBytes(r, receiptBlob, fr.flights.ReceiptBody)
	if err != nil {
		return err
	}
	if p := noReceiptProblem(f); p != nil {
		return missingBody(w.Header(), f, p)
	}
	h, rec := w.Header(), f.Receipt
	h[wire.HeaderReceiptOutcome] = []string{rec.Outcome.String()}
	if rec.ExternalID != "" {
		h[wire.HeaderExternalID] = []string{url.PathEscape(rec.ExternalID)}
	}
	writeBlob(w, r, f, &rec.Body, body)
	return nil
}

// input serves GET /v1/flights/{id}/input: the stored bytes of the input. That of a step of a saga is not stored: it is made of the receipts
// before it, as for the worker, and for the person who approves the step.
func (fr *flightRoutes) input(w http.ResponseWriter, r *http.Request) error {
	f, body, err := fr.findBytes(r, func(f *flight.Flight) flight.Blob { return f.Input }, fr.flights.Input)
	if err != nil {
		return err
	}
	if f.Key.IsStep() && f.State != flight.StateExpired && fr.sagas != nil {
		made, err := fr.sagas.StepInput(f)
		if err == nil {
			blob := flight.NewBlob(wire.TypeJSON, made, saga.MaxResolvedInput)
			writeBlob(w, r, f, &blob, made)
			return nil
		}
		if !errors.As(err, new(*saga.InputError)) && !f.State.Terminal() {
			return about(f.Key, err)
		}
		p := newKeyProblem(wire.NotFound, f.Key, 0)
		p.Detail, p.Hint = "the input of the step cannot be made: "+err.Error(), "read its saga: flightd sagas get "+f.Key.Saga().String()
		return missingBody(w.Header(), f, p)
	}
	if p := noInputProblem(f); p != nil {
		return missingBody(w.Header(), f, p)
	}
	writeBlob(w, r, f, &f.Input, body)
	return nil
}

// findBytes returns the flight in the path and the bytes of one of its blobs.
func (fr *flightRoutes) findBytes(r *http.Request, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, error) {
	id, bad := flightID(r)
	if bad != nil {
		return nil, nil, bad
	}
	f, err := fr.findFlight(r, id, flight.Key{})
	if err != nil {
		return nil, nil, err
	}
	f, body, err := fr.loadBody(r, f, blob, read)
	if err != nil {
		return nil, nil, about(f.Key, err)
	}
	return f, body, nil
}

// missingBody returns the reason why a flight has no such bytes, and sets the flight's headers.
func missingBody(h http.Header, f *flight.Flight, p *wire.Problem) error {
	setFlightHeaders(h, f)
	p.State = f.State.String()
	return problemError{problem: p}
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

// noInputProblem returns the reason why a flight has no input, or nil if it has one.
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

// noReceiptProblem returns the reason why a flight has no receipt, or nil if it has one.
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
