package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// events serves GET /v1/flights/{id}/events: the history of one flight, and as a stream what happens to it from now on.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	id, bad := flightID(r)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	q, bad := eventsQuery(r, "after")
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	f, err := a.cfg.Ledger.Flight(id)
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		a.fail(w, r, flight.Key{}, err)
		return
	}
	if q.after != nil && a.cfg.Feed != nil {
		if err := a.reached(r.Context(), *q.after); err != nil {
			a.failFeed(w, r, err)
			return
		}
	}
	if q.stream {
		a.streamFlight(w, r, f, q.start())
		return
	}
	f, history, err := a.historyBehind(r.Context(), f, &q)
	if err != nil {
		a.fail(w, r, f.Key, err)
		return
	}
	tally, err := a.cfg.Tallies.Tally(id)
	if err != nil {
		a.fail(w, r, f.Key, err)
		return
	}
	out := wire.History{FlightID: id.String(), Events: make([]wire.Event, len(history)), Duplicates: wire.DuplicatesOf(&tally)}
	for i := range history {
		out.Events[i] = wire.EventOf(history[i].Version, &history[i].Event)
	}
	describe(w.Header(), f)
	q.applied(w.Header())
	a.sendValue(w, r, http.StatusOK, out)
}

// historyBehind reads a flight and what happened to it behind the place that the query names. Where there is nothing
// yet it waits as long as the caller prefers.
func (a *api) historyBehind(ctx context.Context, f *flight.Flight, q *eventQuery) (*flight.Flight, []Event, error) {
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	for {
		history, err := a.cfg.Ledger.History(f.ID)
		if err != nil {
			return f, nil, err
		}
		history = slices.DeleteFunc(history, func(e Event) bool { return q.after != nil && !e.Version.Later(*q.after) })
		if len(history) > 0 || q.after == nil || ctx.Err() != nil {
			return f, history, nil
		}
		if next, err := a.cfg.Ledger.Wait(ctx, f.ID, f.Version); err == nil && next != nil {
			f = next
		} else if ctx.Err() == nil {
			return f, nil, err
		}
	}
}

// allEvents serves GET /v1/events: what happens to all flights.
func (a *api) allEvents(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Feed == nil {
		a.refuse(w, r, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no feed of events"}})
		return
	}
	q, bad := eventsQuery(r, "after", "last", "since", "limit", "action", "key_prefix", "kind")
	var ns string
	if bad == nil {
		ns, bad = namespace(r)
	}
	if bad == nil {
		q.namespace, bad = wire.Listed(ns, q.prefix)
	}
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	if q.stream {
		a.streamFeed(w, r, &q)
		return
	}
	events, next, err := a.pageOfFeed(r.Context(), &q)
	if err != nil {
		a.failFeed(w, r, err)
		return
	}
	out := wire.EventPage{Events: make([]wire.Event, len(events)), Next: next.String()}
	for i := range events {
		out.Events[i] = feedEvent(&events[i])
	}
	params := r.URL.Query()
	params.Del("last")
	params.Set("after", out.Next)
	if q.since > 0 { // as it was meant on this page: what is an hour ago is not the same on the next one
		params.Set("since", q.since.At().Format(wire.TimeFormat))
	}
	w.Header().Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
	q.applied(w.Header())
	a.sendValue(w, r, http.StatusOK, out)
}

// pageOfFeed gives what is behind the place that the query names, or the last events where it names none. Where there
// is nothing yet it waits as long as the caller prefers.
func (a *api) pageOfFeed(ctx context.Context, q *eventQuery) ([]FeedEvent, flight.Version, error) {
	if q.after == nil {
		page, err := a.cfg.Feed.Last(q.limit, q.fits, q.enough())
		return page.Events, page.Next, err
	}
	wait, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	after := *q.after
	for {
		events, next, more, err := a.collect(wait, q, after)
		if err != nil || len(events) > 0 || more {
			return events, next, err
		}
		after = next
		if a.cfg.Feed.Await(wait, after) != nil {
			return nil, after, nil // the time is over, or everything is
		}
	}
}

// collectPages is how many pages of the feed are read for one answer at most, so that a filter that nothing passes
// does not hold the caller up: it gets a place to go on behind.
const collectPages = 40

// collect reads events that fit. more says that there is more behind next.
func (a *api) collect(ctx context.Context, q *eventQuery, after flight.Version) (events []FeedEvent, next flight.Version, more bool, err error) {
	for range collectPages {
		page, err := a.readFeed(ctx, after, max(q.limit, streamChunk))
		if err != nil {
			return nil, after, false, err
		}
		for i := range page.Events {
			if q.fits(&page.Events[i]) {
				events = append(events, page.Events[i])
			}
		}
		after, more = page.Next, page.More
		if !more || len(events) >= q.limit {
			break
		}
	}
	if len(events) <= q.limit {
		return events, after, more, nil
	}
	cut := q.limit
	for cut < len(events) && events[cut].Version == events[cut-1].Version {
		cut++ // what one command did stays together: there is no place in the middle of it
	}
	if cut == len(events) {
		return events, after, more, nil
	}
	return events[:cut], events[cut-1].Version, true, nil
}

// catchUp is how long a reader is kept waiting who has seen more, at another node, than this one has applied.
const catchUp = 2 * time.Second

// readFeed reads the feed, and lets this node catch up first where a reader is ahead of it.
func (a *api) readFeed(ctx context.Context, after flight.Version, limit int) (FeedPage, error) {
	page, err := a.cfg.Feed.Read(after, limit)
	var ahead *AheadError
	if !errors.As(err, &ahead) {
		return page, err
	}
	if err := a.reached(ctx, after); err != nil {
		return page, err
	}
	return a.cfg.Feed.Read(after, limit)
}

// reached waits a moment for this node to come as far as a reader's place. *AheadError: it has not, so that nothing that
// happens would be behind that place.
func (a *api) reached(ctx context.Context, place flight.Version) error {
	if place.Index == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), catchUp)
	defer cancel()
	err := a.cfg.Feed.Await(ctx, flight.Version{Index: place.Index - 1})
	if errors.Is(err, context.DeadlineExceeded) {
		return &AheadError{Place: place}
	}
	return err
}

// failFeed answers with what is wrong with a place in the feed.
func (a *api) failFeed(w http.ResponseWriter, r *http.Request, err error) {
	var cut *CutError
	var ahead *AheadError
	p := newProblem(wire.Expired)
	p.Title = "The event position is no longer available"
	switch {
	case errors.As(err, &cut):
		p.Detail = "what happened before " + cut.First.String() + " is no longer in the feed"
		p.Hint = "begin again without Last-Event-ID and after; what was missed stands in the flights themselves: GET /v1/flights?since=…, GET /v1/flights/{id}/events"
	case errors.As(err, &ahead):
		p.Detail = "this ledger has never come as far as " + ahead.Place.String() + ": it is another one, or was restored from a backup"
		p.Hint = "begin again without Last-Event-ID and after"
	default:
		a.fail(w, r, flight.Key{}, err)
		return
	}
	a.answer(w, r, p, err)
}

// feedEvent shows one event of any flight.
func feedEvent(e *FeedEvent) wire.Event {
	shown := wire.EventOf(e.Version, &e.Event.Event)
	shown.Key, shown.FlightID, shown.Count = e.Key.String(), e.Key.FlightID().String(), e.Count
	return shown
}

// eventQuery says which events are wanted, from where on and in which form.
type eventQuery struct {
	stream    bool
	after     *flight.Version // nil: no place was named
	resumed   bool            // the place is that of a stream that was open before
	last      int             // of a stream that begins nowhere in particular: how much of the past it begins with
	limit     int
	since     flight.Time
	namespace string
	action    string
	prefix    string
	kinds     []flight.EventKind
	wait      time.Duration
}

// The numbers of events that may be asked for.
const (
	defaultEvents = 100
	maxEvents     = 1000
)

// eventsQuery reads the parameters that a route takes, and the headers that go with events.
func eventsQuery(r *http.Request, allowed ...string) (q eventQuery, bad *wire.Invalid) {
	q.limit = defaultEvents
	params, bad := parameters(r)
	if bad != nil {
		return q, bad
	}
	for name, values := range params {
		if !slices.Contains(allowed, name) {
			return q, wire.BadParameter(name, "unknown parameter; allowed: %s", strings.Join(allowed, ", "))
		}
		if bad := q.parameter(name, values); bad != nil {
			return q, bad
		}
	}
	id, bad := single(r, wire.HeaderLastEvent)
	if bad != nil {
		return q, bad
	}
	if id != "" { // a stream that goes on: it knows better than its first URL
		v, err := flight.ParseVersion(id)
		if err != nil {
			return q, wire.BadHeader(wire.HeaderLastEvent, "it must be the id of an event as it was sent, like 8123.4, not %.100q", id)
		}
		q.after, q.resumed = &v, true
	}
	q.stream = r.Method != http.MethodHead && wantsStream(r.Header["Accept"])
	if q.stream && q.resumed {
		q.since = 0 // it was about where the stream began; whoever was away for longer misses nothing
	}
	q.wait = preferredWait(r)
	return q, nil
}

func (q *eventQuery) parameter(name string, values []string) (bad *wire.Invalid) {
	value := values[0]
	if len(values) > 1 && name != "kind" {
		return standsTwice(name)
	}
	switch name {
	case "after":
		v, err := flight.ParseVersion(value)
		if err != nil {
			return wire.BadParameter(name, "it must be the id of an event, or next of an earlier page, like 8123.4")
		}
		q.after = &v
	case "last", "limit":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxEvents || n == 0 && name == "limit" {
			return wire.BadParameter(name, "it is a number of events up to %d", maxEvents)
		}
		if name == "last" {
			q.last = n
		} else {
			q.limit = n
		}
	case "since":
		q.since, bad = since(value, time.Now())
	case "action":
		q.action = value
	case "key_prefix":
		q.prefix = value
	case "kind":
		q.kinds, bad = eventKinds(strings.Join(values, ","))
	}
	return bad
}

// eventKinds reads the names of kinds.
func eventKinds(list string) (kinds []flight.EventKind, bad *wire.Invalid) {
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
			return nil, wire.BadParameter("kind", "%.50q is no kind of event; there are %s", word, strings.Join(names, ", "))
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

// start is the place behind which a stream begins.
func (q *eventQuery) start() flight.Version {
	if q.after == nil {
		return flight.Version{}
	}
	return *q.after
}

// fits reports whether an event is wanted.
func (q *eventQuery) fits(e *FeedEvent) bool {
	return (q.namespace == "" || e.Key.Namespace() == q.namespace) && (q.action == "" || e.Key.Name() == q.action) &&
		strings.HasPrefix(e.Key.String(), q.prefix) && e.At >= q.since && (len(q.kinds) == 0 || slices.Contains(q.kinds, e.Kind))
}

// enough says how far it is worth looking back: the log is in the order of its time, but for counts of duplicates, which
// say when the last of them came.
func (q *eventQuery) enough() func(*FeedEvent) bool {
	if q.since == 0 {
		return nil
	}
	return func(e *FeedEvent) bool { return e.At < q.since && e.Kind != flight.EventDuplicates }
}

// applied tells the caller that its wait was heeded.
func (q *eventQuery) applied(h http.Header) {
	if q.wait > 0 {
		h.Set(wire.HeaderApplied, "wait="+strconv.Itoa(int(q.wait/time.Second)))
	}
}
