package httpapi

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// flightWriter answers with flights. The routes of several subjects share it.
type flightWriter struct {
	*responder
	flights   Flights
	limits    *auth.Limiter
	queues    Queues    // nil: the node hands out no jobs
	documents Documents // nil: the server has none
}

// findFlight returns the flight, or the error to answer with if there is none.
func (fw *flightWriter) findFlight(r *http.Request, id flight.ID, named flight.Key) (*flight.Flight, error) {
	f, err := fw.flightOf(r, id, named)
	switch {
	case err == nil && f != nil && f.State == flight.StateAbsent:
		return nil, absentError(f)
	case err == nil && f == nil:
		err = &effect.Missing{ID: id}
	case err == nil && fw.follower != nil && !f.HasFinalReceipt():
		err = askLeader()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// askLeader returns the error of a node that does not lead and has no final answer: the node then asks the leader.
func askLeader() error { return &effect.Unavailable{Code: string(wire.NoLeader)} }

// absentError says that the key has no flight: it was freed (the problem says by whom), or it was never used.
func absentError(f *flight.Flight) error {
	switch {
	case len(f.PreviousGenerations) == 0 && len(f.Evidence) > 0: // the ledger was restored from a backup older than the attempt
		p := newKeyProblem(wire.NotFound, f.Key, 0)
		p.Detail = "the key was never used in this ledger, but late reports for it are stored as evidence"
		p.Hint = "read its events: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
		return problemError{problem: p}
	case len(f.PreviousGenerations) == 0:
		return &effect.Missing{ID: f.ID}
	}
	past := &f.PreviousGenerations[len(f.PreviousGenerations)-1]
	by := &past.EndedBy
	p := newKeyProblem(wire.NotFound, f.Key, 0)
	p.State, p.Version = f.State.String(), formatVersion(f.Version)
	p.Detail = fmt.Sprintf("the key was freed on %s by %s: %s; its state was %s, and the next open may act",
		by.At.AsTime().Format(wire.TimeFormat), cmp.Or(by.Actor, wire.UnknownActor), cmp.Or(by.Reason, "no reason was given"), past.State)
	p.Hint = "read its history: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
	return problemError{problem: p}
}

// answer is the answer with a flight and its receipt.
func (fw *flightWriter) answer(q *Request, f *flight.Flight) (*wire.Flight, error) {
	f, body, err := fw.loadReceiptBody(q.Request, f)
	if q.key = f.Key; err != nil {
		return nil, err
	}
	q.describe(f)
	shown := wire.FlightOf(f, body, true)
	header := fw.ledger.Header()
	shown.HeldUntil, shown.CallbackUntil = wire.HeldUntil(f, header, fw.ledger.Now()), wire.CallbackUntil(f, header)
	shown.BlockedBy = fw.blocksOf(q.Request, f)
	return shown, nil
}

// loadReceiptBody is loadBody for the receipt.
func (fw *flightWriter) loadReceiptBody(r *http.Request, f *flight.Flight) (*flight.Flight, []byte, error) {
	return fw.loadBody(r, f, receiptBlob, fw.flights.ReceiptBody)
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
func (fw *flightWriter) loadBody(r *http.Request, f *flight.Flight, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, error) {
	for {
		b := blob(f)
		if f.State == flight.StateExpired || b.StoredSize == 0 || b.Data != nil {
			return f, b.Data, nil
		}
		body, err := read(f)
		if err == nil {
			return f, body, nil
		}
		now, unread := fw.flightOf(r, f.ID, f.Key)
		if unread != nil || now == nil || now.Version == f.Version {
			return f, nil, err
		}
		if f = now; f.State == flight.StateAbsent {
			return f, nil, &effect.Missing{ID: f.ID}
		}
	}
}
