package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// flightRoutes serve what is stored of flights: one, or lists of them, with inputs and receipts.
type flightRoutes struct {
	*flightWriter
	sagas Sagas // nil: the server has none
}

func (fr *flightRoutes) routes() []declaration {
	access := with(auth.Read)
	return []declaration{
		route{pattern: "GET /v1/flights", serve: fr.list, access: access, query: true},
		route{pattern: "GET /v1/flights/{id}", serve: fr.flight, access: access},
		route{pattern: "GET /v1/flights/{id}/input", serve: fr.input, access: access},
		route{pattern: "GET /v1/flights/{id}/receipt", serve: fr.receipt, access: access},
	}
}

// flight serves GET /v1/flights/{id}.
func (fr *flightRoutes) flight(w http.ResponseWriter, r *http.Request) error {
	id, bad := flightID(r)
	if bad != nil {
		return bad
	}
	return fr.getFlight(w, r, id, flight.Key{})
}

// getFlight answers with one flight. If If-None-Match names its current version, it waits for another one as long as
// Prefer asks, and answers 304 if there is none. named is the key in the request, or zero if it has none.
func (fr *flightRoutes) getFlight(w http.ResponseWriter, r *http.Request, id flight.ID, named flight.Key) error {
	seen, bad := parseETags(r.Header["If-None-Match"])
	if bad != nil {
		return bad
	}
	f, err := fr.findFlight(r, id, named)
	if err != nil {
		return err
	}
	same := seen.contains(f.Version)
	wait := preferredWait(r)
	if same && wait > 0 {
		if end, ok := startWait(fr.limits, r, f.Key); ok {
			defer end()
		} else {
			wait = 0
		}
	}
	if same && wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		next, err := fr.ledger.Wait(ctx, id, f.Version)
		if bad := fr.recheck(r); bad != nil {
			return bad
		}
		switch {
		case err == nil && next != nil && next.State == flight.StateAbsent: // the key was freed meanwhile
			return absentError(next)
		case err == nil && next != nil:
			f, same = next, false
		case ctx.Err() == nil || r.Context().Err() != nil: // the ledger failed or the request ended; a wait that is over falls through
			return about(f.Key, err)
		}
		w.Header().Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	if same {
		setFlightHeaders(w.Header(), f)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return fr.writeFlight(w, r, f)
}

// startWait reserves the place of a request that waits for a change. If it returns false, too many requests wait, and
// this one must be answered at once.
func startWait(limits *auth.Limiter, r *http.Request, key flight.Key) (end func(), ok bool) {
	namespace := key.Namespace()
	if c := boundCaller(r); c != nil {
		namespace = c.Namespace
	}
	return limits.StartWait(namespace, false)
}
