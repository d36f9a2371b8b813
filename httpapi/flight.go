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
		Endpoint[flightsQuery, any]{Pattern: "GET /v1/flights", Access: access, Serve: fr.list},
		Endpoint[flightPath, wire.Flight]{Pattern: "GET /v1/flights/{id}", Place: Final, Access: access, Serve: fr.flight},
		route{pattern: "GET /v1/flights/{id}/input", place: Final, serve: fr.input, access: access},
		route{pattern: "GET /v1/flights/{id}/receipt", place: Final, serve: fr.receipt, access: access},
	}
}

// flight returns one flight.
func (fr *flightRoutes) flight(q *Request, in *flightPath) (*wire.Flight, error) {
	return fr.find(q, in.Flight, flight.Key{})
}

// find returns one flight. If If-None-Match names its current version, it waits for another one as long as
// Prefer asks, and answers 304 if there is none. named is the key in the request, or zero if it has none.
func (fr *flightRoutes) find(q *Request, id flight.ID, named flight.Key) (*wire.Flight, error) {
	seen, bad := parseETags(q.Header["If-None-Match"])
	if bad != nil {
		return nil, bad
	}
	wait := preferredWait(q.Request)
	if fr.follower != nil && wait > 0 && q.Header["If-None-Match"] != nil {
		return nil, askLeader() // this node may not have the version that the caller has seen
	}
	f, err := fr.findFlight(q.Request, id, named)
	if err != nil {
		return nil, err
	}
	same := seen.contains(f.Version)
	if same && wait > 0 {
		if end, ok := startWait(fr.limits, q.Request, f.Key); ok {
			defer end()
		} else {
			wait = 0
		}
	}
	if same && wait > 0 {
		ctx, cancel := context.WithTimeout(q.Context(), wait)
		defer cancel()
		next, err := fr.ledger.Wait(ctx, id, f.Version)
		if bad := fr.recheck(q.Request); bad != nil {
			return nil, bad
		}
		switch {
		case err == nil && next != nil && next.State == flight.StateAbsent: // the key was freed meanwhile
			return nil, absentError(next)
		case err == nil && next != nil:
			f, same = next, false
		case ctx.Err() == nil || q.Context().Err() != nil: // the ledger failed or the request ended; a wait that is over falls through
			q.key = f.Key
			return nil, err
		}
		q.header.Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	if same {
		q.describe(f)
		q.answerWith(http.StatusNotModified)
		return nil, nil
	}
	return fr.answer(q, f)
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
