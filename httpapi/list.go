package httpapi

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"net/url"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Default and limit of the flights on a page.
const (
	defaultPage = 50
	maxPage     = 500
)

// setNextPage sets the header Link to the next page, which has the same path and these parameters.
func setNextPage(w http.ResponseWriter, r *http.Request, params url.Values) {
	w.Header().Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
}

// flightFilters select a page of flights.
type flightFilters struct {
	Action    string         `query:"action"`
	KeyPrefix string         `query:"key_prefix"`
	Since     sinceParameter `query:"since"`
	Limit     limitParameter `query:"limit"`
	Cursor    *string        `query:"cursor"`
}

// flightsQuery selects a page of flights, or the flight of a key.
type flightsQuery struct {
	Key    keyParameter `query:"key"`
	States []string     `query:"state"`
	flightFilters
	Contains   string `query:"contains"`
	ExternalID string `query:"external_id"`
}

// keyParameter is a key that the query may name.
type keyParameter struct {
	flight.Key
	given bool
}

func (k *keyParameter) set(name, value string) (bad *wire.Invalid) {
	k.given = true
	k.Key, bad = wire.ParseKey(value, wire.BadParameter(name, ""))
	return bad
}

// list returns the flight of a key, or a page of flights.
func (fr *flightRoutes) list(q *Request, in *flightsQuery) (*any, error) {
	if in.Key.given {
		return fr.byKey(q, in.Key.Key)
	}
	query, bad := fr.query(q, &in.flightFilters)
	if bad != nil {
		return nil, bad
	}
	query.Contains, query.ExternalID = in.Contains, in.ExternalID
	for _, word := range in.States {
		s, err := flight.ParseState(word)
		switch {
		case err != nil:
			return nil, wire.BadParameter("state", "unknown state %.50q; allowed: scheduled, ready, awaiting_approval, running, waiting, in_doubt, succeeded, failed, cancelled", word)
		case s == flight.StateExpired:
			return nil, wire.BadParameter("state", "expired flights are not listed, because a tombstone does not store its key; get the flight by its key or id")
		}
		query.States = append(query.States, s)
	}
	page, err := fr.page(q, query)
	return answerOf(page, err)
}

// answerOf is the answer of an endpoint that has answers of several types.
func answerOf[T any](answer *T, err error) (*any, error) {
	if answer == nil || err != nil {
		return nil, err
	}
	of := any(answer)
	return &of, nil
}

func (fr *flightRoutes) byKey(q *Request, key flight.Key) (*any, error) {
	if params, _ := queryParameters(q.Request); len(params) > 1 {
		return nil, wire.BadParameter("key", "not allowed together with other parameters: a key selects one flight")
	}
	if bad := allowKey(q.Request, key, wire.FieldError{Parameter: "key"}); bad != nil {
		return nil, bad
	}
	f, err := fr.find(q, key.FlightID(), key)
	return answerOf(f, err)
}

// page returns the flights of a query, with a link to the next page.
func (fr *flightRoutes) page(q *Request, query flight.Query) (*wire.FlightPage, error) {
	end, err := fr.limits.StartScan(cmp.Or(query.Namespace, wire.AllNamespaces))
	if err != nil {
		return nil, err
	}
	defer end()
	page, err := fr.flights.List(query)
	if err != nil {
		return nil, err
	}
	out := &wire.FlightPage{Flights: make([]wire.Flight, len(page.Flights))}
	for i, f := range page.Flights {
		out.Flights[i] = *wire.FlightOf(f, nil, false)
		if f.State == flight.StateInDoubt && f.Duplicates != nil { // a single flight has none: they change without its version
			out.Flights[i].Duplicates = wire.DuplicateStatsOf(f.Duplicates)
		}
	}
	if page.More {
		out.Next = fr.sealCursor(q.Request, encodeCursor(page.Next, query.Since))
		q.linkNext(out.Next)
	}
	return out, nil
}

// query returns the query of the ledger for filters.
func (fr *flightRoutes) query(q *Request, in *flightFilters) (query flight.Query, bad *wire.Invalid) {
	query = flight.Query{Name: in.Action, Prefix: in.KeyPrefix, Since: flight.Time(in.Since), Limit: in.Limit.or(defaultPage)}
	if in.Cursor != nil {
		var since flight.Time
		if query.After, since, bad = decodeCursor(fr.unsealCursor(q.Request, *in.Cursor)); bad != nil {
			return query, bad
		}
		if since > 0 && query.Since > 0 {
			query.Since = since
		}
	}
	ns, bad := namespace(q.Request)
	if bad == nil {
		query.Namespace, bad = wire.ParseListNamespace(ns, query.Prefix)
	}
	return query, bad
}

// duplicateParameter is the error for a parameter that occurs more than once.
func duplicateParameter(name string) *wire.Invalid {
	return wire.BadParameter(name, "duplicate parameter")
}

// parseSince parses a time, or a duration before now.
func parseSince(value string, now time.Time) (flight.Time, *wire.Invalid) {
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return flight.Time(t.UnixMilli()), nil
	}
	d, err := wire.ParseRetention(value)
	if err != nil {
		return 0, wire.BadParameter("since", `must be a duration or a time, like "1h", "30d" or "2026-01-31T12:00:00Z"`)
	}
	return flight.Time(now.Add(-d).UnixMilli()), nil
}

// encodeCursor encodes a position. It includes the absolute start of the list, so that since=1h means the same hour on
// every page.
func encodeCursor(c flight.Cursor, since flight.Time) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.Created))
	b = append(b, c.ID[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(since))
}

func decodeCursor(b []byte) (c flight.Cursor, since flight.Time, bad *wire.Invalid) {
	if len(b) != 8+len(c.ID)+8 {
		return c, 0, wire.BadParameter("cursor", "must be the next of an earlier page, unchanged")
	}
	c.Created = flight.Time(binary.BigEndian.Uint64(b))
	copy(c.ID[:], b[8:])
	return c, flight.Time(binary.BigEndian.Uint64(b[8+len(c.ID):])), nil
}
