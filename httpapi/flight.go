package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// flight serves GET /v1/flights/{id}.
func (a *api) flight(w http.ResponseWriter, r *http.Request) {
	id, bad := flightID(r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	a.getFlight(w, r, id, flight.Key{})
}

// getFlight answers with one flight. If If-None-Match names its current version, it waits for another one as long as
// Prefer asks, and answers 304 if there is none. named is the key in the request; zero if it has none.
func (a *api) getFlight(w http.ResponseWriter, r *http.Request, id flight.ID, named flight.Key) {
	seen, bad := parseETags(r.Header["If-None-Match"])
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	f, ok := a.findFlight(w, r, id, named)
	if !ok {
		return
	}
	same := seen.contains(f.Version)
	wait := preferredWait(r)
	if same && wait > 0 {
		if end, ok := a.startWait(r, f.Key); ok {
			defer end()
		} else {
			wait = 0
		}
	}
	if same && wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		next, err := a.cfg.Ledger.Wait(ctx, id, f.Version)
		if bad := a.recheck(r); bad != nil {
			a.writeInvalid(w, r, bad)
			return
		}
		switch {
		case err == nil && next != nil && next.State == flight.StateAbsent: // the key was freed meanwhile
			a.writeAbsent(w, r, next)
			return
		case err == nil && next != nil:
			f, same = next, false
		case ctx.Err() == nil || r.Context().Err() != nil: // the ledger failed or the request ended; a wait that is over falls through
			a.writeError(w, r, f.Key, err)
			return
		}
		w.Header().Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	if same {
		setFlightHeaders(w.Header(), f)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	a.writeFlight(w, r, f)
}

// startWait reserves the place of a request that waits for a change. If it returns false, too many requests wait, and
// this one must be answered at once.
func (a *api) startWait(r *http.Request, key flight.Key) (end func(), ok bool) {
	namespace := key.Namespace()
	if c := boundCaller(r); c != nil {
		namespace = c.Namespace
	}
	return a.limits.StartWait(namespace, false)
}

// findFlight returns the flight. If there is none, it has answered the request and returns false.
func (a *api) findFlight(w http.ResponseWriter, r *http.Request, id flight.ID, named flight.Key) (*flight.Flight, bool) {
	f, err := a.flightOf(r, id, named)
	switch {
	case err == nil && f != nil && f.State == flight.StateAbsent:
		a.writeAbsent(w, r, f)
		return nil, false
	case err == nil && f == nil:
		err = &effect.Missing{ID: id}
	case err == nil && a.cfg.Follower != nil && !f.HasFinalReceipt():
		err = &effect.Unavailable{Code: string(wire.NoLeader)}
	}
	if err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return nil, false
	}
	return f, true
}

// writeAbsent answers that the key has no flight: it was freed (the answer says by whom), or it was never used.
func (a *api) writeAbsent(w http.ResponseWriter, r *http.Request, f *flight.Flight) {
	switch {
	case len(f.PreviousGenerations) == 0 && len(f.Evidence) > 0: // the ledger was restored from a backup older than the attempt
		p := newKeyProblem(wire.NotFound, f.Key, 0)
		p.Detail = "the key was never used in this ledger, but late reports for it are stored as evidence"
		p.Hint = "read its events: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
		a.writeAndLogProblem(w, r, p, nil)
		return
	case len(f.PreviousGenerations) == 0:
		a.writeError(w, r, flight.Key{}, &effect.Missing{ID: f.ID})
		return
	}
	past := &f.PreviousGenerations[len(f.PreviousGenerations)-1]
	by := &past.EndedBy
	p := newKeyProblem(wire.NotFound, f.Key, 0)
	p.State, p.Version = f.State.String(), formatVersion(f.Version)
	p.Detail = fmt.Sprintf("the key was freed on %s by %s: %s; its state was %s, and the next open may act",
		by.At.AsTime().Format(wire.TimeFormat), cmp.Or(by.Actor, unknownActor), cmp.Or(by.Reason, "no reason was given"), past.State)
	p.Hint = "read its history: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
	a.writeAndLogProblem(w, r, p, nil)
}
