package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// eventQuery is the parsed request for events.
type eventQuery struct {
	stream    bool
	after     *flight.Version // nil: the request has no position
	resumed   bool            // the position is a Last-Event-ID
	last      int             // number of past events at the start of a stream without a position
	limit     int
	since     flight.Time
	namespace string
	documents bool // with the events of documents
	action    string
	prefix    string
	kinds     []flight.EventKind
	wait      time.Duration
}

// Default and limit of the number of events in one answer.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

// parseEventQuery parses the allowed query parameters, and the headers Last-Event-ID, Accept and Prefer.
func parseEventQuery(r *http.Request, allowed ...string) (q eventQuery, bad *wire.Invalid) {
	q.limit = defaultEvents
	params, bad := queryParameters(r)
	if bad != nil {
		return q, bad
	}
	for name, values := range params {
		if !slices.Contains(allowed, name) {
			return q, wire.BadParameter(name, "unknown parameter; allowed: %s", strings.Join(allowed, ", "))
		}
		if bad := q.setParameter(name, values); bad != nil {
			return q, bad
		}
	}
	id, bad := singleHeader(r, wire.HeaderLastEvent)
	if bad != nil {
		return q, bad
	}
	if id != "" { // a resumed stream: this header is newer than the parameters in its URL
		v, err := flight.ParseVersion(id)
		if err != nil {
			return q, wire.BadHeader(wire.HeaderLastEvent, "it must be the id of an event, like 8123.4, not %.100q", id)
		}
		q.after, q.resumed = &v, true
	}
	q.stream = r.Method != http.MethodHead && wantsStream(r.Header["Accept"])
	if q.stream && q.resumed {
		q.since = 0 // since selects where a stream starts; a resumed stream must not skip events
	}
	q.wait = preferredWait(r)
	return q, nil
}

func (q *eventQuery) setParameter(name string, values []string) (bad *wire.Invalid) {
	value := values[0]
	if len(values) > 1 && name != "kind" {
		return duplicateParameter(name)
	}
	switch name {
	case "after":
		v, err := flight.ParseVersion(value)
		if err != nil {
			return wire.BadParameter(name, "it must be the id of an event or the next of an earlier page, like 8123.4")
		}
		q.after = &v
	case "last", "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxEvents || n == 0 && name == "limit" {
			return wire.BadParameter(name, "it must be a number of events, at most %d", maxEvents)
		}
		if name == "last" {
			q.last = n
		} else {
			q.limit = n
		}
	case "since":
		q.since, bad = parseSince(value, time.Now())
	case "action":
		q.action = value
	case "key_prefix":
		q.prefix = value
	case "kind":
		q.kinds, bad = parseEventKinds(strings.Join(values, ","))
	}
	return bad
}

// parseEventKinds parses a comma-separated list of event kinds.
func parseEventKinds(list string) (kinds []flight.EventKind, bad *wire.Invalid) {
	for word := range strings.SplitSeq(list, ",") {
		var names []string
		found := false
		for k := flight.EventSubmitted; k.String() != "invalid" && !found; k++ {
			names = append(names, k.String())
			if found = k.String() == word; found {
				kinds = append(kinds, k)
			}
		}
		if !found {
			return nil, wire.BadParameter("kind", "unknown event kind %.50q; allowed: %s", word, strings.Join(names, ", "))
		}
	}
	return kinds, nil
}

// wantsStream reports whether the caller accepts a stream of events.
func wantsStream(accept []string) bool {
	for _, line := range accept {
		for kind := range strings.SplitSeq(line, ",") {
			if name, weight := mediaRange(kind); name == wire.TypeEvents && weight > 0 {
				return true
			}
		}
	}
	return false
}

// startPosition returns the position after which a stream starts.
func (q *eventQuery) startPosition() flight.Version {
	if q.after == nil {
		return flight.Version{}
	}
	return *q.after
}

// matches reports whether an event passes the filters.
func (q *eventQuery) matches(e *flight.FeedEvent) bool {
	return (q.documents || !e.Key.IsZero()) && (q.namespace == "" || e.Namespace() == q.namespace) && (q.action == "" || e.Key.Name() == q.action) &&
		strings.HasPrefix(e.Key.String(), q.prefix) && e.At >= q.since && (len(q.kinds) == 0 || slices.Contains(q.kinds, e.Kind))
}

// stopBefore returns the function that ends a backward scan at the start of the query's time range, or nil if the query
// has none. The feed is in the order of time, so no earlier event can match.
func (q *eventQuery) stopBefore() func(*flight.FeedEvent) bool {
	if q.since == 0 {
		return nil
	}
	return func(e *flight.FeedEvent) bool { return e.At < q.since }
}

// setPreferenceApplied tells the caller that its preferred wait was applied.
func (q *eventQuery) setPreferenceApplied(h http.Header) {
	if q.wait > 0 {
		h.Set(wire.HeaderPreferenceApplied, "wait="+strconv.Itoa(int(q.wait/time.Second)))
	}
}
