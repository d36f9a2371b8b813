package httpapi

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Default and limit of the flights on a page.
const (
	defaultPage = 50
	maxPage     = 500
)

// parsePageLimit parses the parameter limit of a list.
func parsePageLimit(value string) (limit int, bad *wire.Invalid) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxPage {
		return 0, wire.BadParameter("limit", "must be from 1 to %d", maxPage)
	}
	return n, nil
}

// setNextPage sets the header Link to the next page, which has the same path and these parameters.
func setNextPage(w http.ResponseWriter, r *http.Request, params url.Values) {
	w.Header().Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
}

// list serves GET /v1/flights: the flight of a key, or a page of flights.
func (fr *flightRoutes) list(w http.ResponseWriter, r *http.Request) error {
	params, bad := queryParameters(r)
	if bad != nil {
		return bad
	}
	if params.Has("key") {
		return fr.byKey(w, r, params)
	}
	q, bad := fr.parseListQuery(r, params)
	if bad != nil {
		return bad
	}
	return fr.writePage(w, r, params, q)
}

// writePage answers with a page of the flights of a query, whose parameters lead to the next page.
func (fr *flightRoutes) writePage(w http.ResponseWriter, r *http.Request, params url.Values, q flight.Query) error {
	end, err := fr.limits.StartScan(cmp.Or(q.Namespace, wire.AllNamespaces))
	if err != nil {
		return err
	}
	defer end()
	page, err := fr.flights.List(q)
	if err != nil {
		return err
	}
	out := wire.FlightPage{Flights: make([]wire.Flight, len(page.Flights))}
	for i, f := range page.Flights {
		out.Flights[i] = *wire.FlightOf(f, nil, false)
		if f.State == flight.StateInDoubt && f.Duplicates != nil { // a single flight has none: they change without its version
			out.Flights[i].Duplicates = wire.DuplicateStatsOf(f.Duplicates)
		}
	}
	if page.More {
		out.Next = fr.sealCursor(r, encodeCursor(page.Next, q.Since))
		params.Set("cursor", out.Next)
		setNextPage(w, r, params)
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

func (fr *flightRoutes) byKey(w http.ResponseWriter, r *http.Request, params url.Values) error {
	if len(params) > 1 || len(params["key"]) > 1 {
		return wire.BadParameter("key", "not allowed together with other parameters: a key selects one flight")
	}
	key, bad := wire.ParseKey(params.Get("key"), wire.BadParameter("key", ""))
	if bad != nil {
		return bad
	}
	if bad := allowKey(r, key, wire.FieldError{Parameter: "key"}); bad != nil {
		return bad
	}
	return fr.getFlight(w, r, key.FlightID(), key)
}

// parseListQuery parses the filters.
func (fr *flightRoutes) parseListQuery(r *http.Request, params url.Values) (q flight.Query, bad *wire.Invalid) {
	q.Limit = defaultPage
	var cursorSince flight.Time
	for name, values := range params {
		value := values[0]
		if len(values) > 1 && name != "state" {
			return q, duplicateParameter(name)
		}
		switch name {
		case "state":
			for word := range strings.SplitSeq(strings.Join(values, ","), ",") {
				s, err := flight.ParseState(word)
				if err != nil {
					return q, wire.BadParameter(name, "unknown state %.50q; allowed: scheduled, ready, awaiting_approval, running, waiting, in_doubt, succeeded, failed, cancelled", word)
				}
				if s == flight.StateExpired {
					return q, wire.BadParameter(name, "expired flights are not listed, because a tombstone does not store its key; get the flight by its key or id")
				}
				q.States = append(q.States, s)
			}
		case "action":
			q.Name = value
		case "key_prefix":
			q.Prefix = value
		case "contains":
			q.Contains = value
		case "external_id":
			q.ExternalID = value
		case "since":
			if q.Since, bad = parseSince(value, time.Now()); bad != nil {
				return q, bad
			}
		case "limit":
			if q.Limit, bad = parsePageLimit(value); bad != nil {
				return q, bad
			}
		case "cursor":
			if q.After, cursorSince, bad = decodeCursor(fr.unsealCursor(r, value)); bad != nil {
				return q, bad
			}
		default:
			return q, wire.BadParameter(name, "unknown filter; allowed: key, state, action, key_prefix, contains, external_id, since, limit, cursor")
		}
	}
	if cursorSince > 0 && q.Since > 0 {
		q.Since = cursorSince
	}
	var ns string
	if ns, bad = namespace(r); bad == nil {
		q.Namespace, bad = wire.ParseListNamespace(ns, q.Prefix)
	}
	return q, bad
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
