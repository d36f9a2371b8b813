package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// eventRoutes serve the events of one flight and of all flights, as pages and as streams.
type eventRoutes struct {
	*responder
	flights     Flights
	feed        Feed // nil: there are no events of all flights
	duplicates  DuplicateCounter
	limits      *auth.Limiter
	heartbeat   time.Duration
	maxStreams  int64
	openStreams atomic.Int64
}

func newEventRoutes(cfg *Config, re *responder, duplicates DuplicateCounter, limits *auth.Limiter) *eventRoutes {
	return &eventRoutes{responder: re, flights: cfg.Ledger, feed: cfg.Events.Feed, duplicates: duplicates, limits: limits,
		heartbeat: cmp.Or(cfg.Events.Heartbeat, defaultHeartbeat), maxStreams: min(maxStreams, int64(cmp.Or(cfg.Events.MaxStreams, maxStreams)))}
}

func (er *eventRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "GET /v1/flights/{id}/events", place: Final, serve: er.flightEvents, access: with(auth.Read), query: true},
		route{pattern: "GET /v1/events", place: Final, serve: er.allEvents, access: with(auth.Read), query: true},
	}
}

// flightEvents serves GET /v1/flights/{id}/events: a page of the history of one flight, or a stream that continues.
func (er *eventRoutes) flightEvents(w http.ResponseWriter, r *http.Request) error {
	id, bad := flightID(r)
	if bad != nil {
		return bad
	}
	q, bad := parseEventQuery(r, "after", "limit")
	if bad != nil {
		return bad
	}
	f, err := er.flightOf(r, id, flight.Key{})
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		return err
	}
	if q.after != nil && er.feed != nil {
		if err := er.waitApplied(r.Context(), *q.after); err != nil {
			return feedError(err)
		}
	}
	if q.stream {
		return er.streamFlight(w, r, f, q.startPosition())
	}
	if q.wait > 0 && q.after != nil {
		if end, ok := startWait(er.limits, r, f.Key); ok {
			defer end()
		} else {
			q.wait = 0
		}
	}
	f, history, err := er.waitHistory(r.Context(), f, &q)
	if bad := er.recheck(r); bad != nil {
		return bad
	}
	if err != nil {
		return about(f.Key, err)
	}
	stats, err := er.duplicates.DuplicateStats(id)
	if err != nil {
		return about(f.Key, err)
	}
	page := cutHistory(history, q.limit)
	out := wire.History{FlightID: id.String(), Events: make([]wire.Event, len(page)), Duplicates: wire.DuplicateStatsOf(&stats)}
	for i := range page {
		out.Events[i] = wire.EventOf(page[i].Version, &page[i].Event)
	}
	if len(page) < len(history) {
		out.Next = page[len(page)-1].Version.String()
		params := r.URL.Query()
		params.Set("after", out.Next)
		setNextPage(w, r, params)
	}
	setFlightHeaders(w.Header(), f)
	q.setPreferenceApplied(w.Header())
	return writeJSON(w, r, http.StatusOK, out)
}

// maxHistoryText limits the actors and notes of the events on one page of a history, in bytes, and a part of a history in a stream.
const maxHistoryText = 256 << 10

// cutHistory returns the first page of a history. It ends between two commands, because a position cannot lie between
// the events of one command.
func cutHistory(history []flight.HistoryEvent, limit int) []flight.HistoryEvent {
	text := 0
	for i := range history {
		text += len(history[i].Actor) + len(history[i].Note)
		if i > 0 && (i >= limit || text > maxHistoryText) && history[i].Version != history[i-1].Version {
			return history[:i]
		}
	}
	return history
}

// waitHistory returns a flight and its events after the query's position. If there are none yet, it waits as long as
// the caller prefers.
func (er *eventRoutes) waitHistory(ctx context.Context, f *flight.Flight, q *eventQuery) (*flight.Flight, []flight.HistoryEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	for {
		history, err := er.flights.History(f.ID)
		if err != nil {
			return f, nil, err
		}
		history = slices.DeleteFunc(history, func(e flight.HistoryEvent) bool { return q.after != nil && !e.Version.After(*q.after) })
		if len(history) > 0 || q.after == nil || ctx.Err() != nil {
			return f, history, nil
		}
		if next, err := er.ledger.Wait(ctx, f.ID, f.Version); err == nil && next != nil {
			f = next
		} else if ctx.Err() == nil {
			return f, nil, err
		}
	}
}

// allEvents serves GET /v1/events: the events of all flights.
func (er *eventRoutes) allEvents(w http.ResponseWriter, r *http.Request) error {
	if er.feed == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no event feed"}}
	}
	q, bad := parseEventQuery(r, "after", "last", "since", "limit", "action", "key_prefix", "kind")
	var ns string
	if bad == nil {
		ns, bad = namespace(r)
	}
	if bad == nil {
		q.namespace, bad = wire.ParseListNamespace(ns, q.prefix)
	}
	if bad != nil {
		return bad
	}
	if er.follower != nil && q.after == nil {
		return askLeader() // how far back the log reaches differs between nodes
	}
	if q.stream {
		return er.streamFeed(w, r, &q)
	}
	if q.wait > 0 && q.after != nil {
		if end, ok := er.limits.StartWait(cmp.Or(q.namespace, wire.AllNamespaces), false); ok {
			defer end()
		} else {
			q.wait = 0
		}
	}
	events, next, err := er.feedPage(r, &q)
	if err != nil {
		return feedError(err)
	}
	out := wire.EventPage{Events: make([]wire.Event, len(events)), Next: next.String()}
	for i := range events {
		out.Events[i] = wireFeedEvent(&events[i])
	}
	params := r.URL.Query()
	params.Del("last")
	params.Set("after", out.Next)
	if q.since > 0 { // as an absolute time: "an hour ago" would move from page to page
		params.Set("since", q.since.AsTime().Format(wire.TimeFormat))
	}
	setNextPage(w, r, params)
	q.setPreferenceApplied(w.Header())
	return writeJSON(w, r, http.StatusOK, out)
}

// feedPage returns the events after the query's position, or the last ones if the query has no position. If there are
// none yet, it waits as long as the caller prefers.
func (er *eventRoutes) feedPage(r *http.Request, q *eventQuery) ([]flight.FeedEvent, flight.Version, error) {
	if q.after == nil {
		if err := er.recheckReader(r, q); err != nil {
			return nil, flight.Version{}, err
		}
		end, err := er.limits.StartScan(cmp.Or(q.namespace, wire.AllNamespaces))
		if err != nil {
			return nil, flight.Version{}, err
		}
		defer end()
		page, err := er.feed.Last(q.limit, q.matches, q.stopBefore())
		return page.Events, page.Next, err
	}
	wait, cancel := context.WithTimeout(r.Context(), q.wait)
	defer cancel()
	after := *q.after
	for {
		end, err := er.limits.StartScan(cmp.Or(q.namespace, wire.AllNamespaces))
		if err != nil {
			return nil, after, err
		}
		events, next, more, err := er.collectMatching(wait, r, q, after)
		end()
		if err != nil || len(events) > 0 || more {
			return events, next, err
		}
		after = next
		if er.feed.Await(wait, after) != nil {
			return nil, after, er.recheckReader(r, q) // the wait has ended, or the request or the ledger has
		}
	}
}

// recheckReader authenticates the reader of events again, and sets whether it reads those of documents: its token may
// have been changed meanwhile.
func (er *eventRoutes) recheckReader(r *http.Request, q *eventQuery) error {
	if bad := er.recheck(r); bad != nil {
		return bad
	}
	c := callerOf(r)
	q.documents = c == nil || c.Verbs.HasAny(auth.Admin)
	return nil
}

// maxCollectPages limits the pages of the feed that are read for one answer. If few events match the filter, the caller
// gets a short page and the position to continue after.
const maxCollectPages = 40

// collectMatching reads events that match the query. more reports that events after next exist already.
func (er *eventRoutes) collectMatching(ctx context.Context, r *http.Request, q *eventQuery, after flight.Version) (events []flight.FeedEvent, next flight.Version, more bool, err error) {
	for range maxCollectPages {
		page, err := er.readFeed(ctx, after, max(q.limit, streamBatch))
		if err != nil {
			return nil, after, false, err
		}
		if err := er.recheckReader(r, q); err != nil {
			return nil, after, false, err
		}
		for i := range page.Events {
			if q.matches(&page.Events[i]) {
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
		cut++ // a position cannot lie between the events of one command
	}
	if cut == len(events) {
		return events, after, more, nil
	}
	return events[:cut], events[cut-1].Version, true, nil
}

// maxCatchUp is how long a reader waits whose position, read from another node, is ahead of this node.
const maxCatchUp = 2 * time.Second

// readFeed reads the feed. If the reader is ahead of this node, it waits for the node to catch up and reads again.
func (er *eventRoutes) readFeed(ctx context.Context, after flight.Version, limit int) (flight.FeedPage, error) {
	page, err := er.feed.Read(after, limit)
	if !errors.As(err, new(*flight.FuturePositionError)) {
		return page, err
	}
	if err := er.waitApplied(ctx, after); err != nil {
		return page, err
	}
	return er.feed.Read(after, limit)
}

// waitApplied waits up to maxCatchUp until this node has applied a reader's position. It returns *flight.FuturePositionError
// if the node has not: new events would get positions before the reader's, and the reader would miss them.
func (er *eventRoutes) waitApplied(ctx context.Context, place flight.Version) error {
	if place.Index == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCatchUp)
	defer cancel()
	err := er.feed.Await(ctx, flight.Version{Index: place.Index - 1})
	if errors.Is(err, context.DeadlineExceeded) {
		return &flight.FuturePositionError{Position: place}
	}
	return err
}

// feedError returns the error to answer with after a read of the feed.
func feedError(err error) error {
	var compacted *flight.CompactedError
	var future *flight.FuturePositionError
	p := newProblem(wire.Expired)
	p.Title = "The event position is no longer available"
	switch {
	case errors.As(err, &compacted):
		p.Detail = "events before " + compacted.First.String() + " are no longer in the feed"
		p.Hint = "start again without Last-Event-ID and after; find the events you missed in the flights: GET /v1/flights?since=…, GET /v1/flights/{id}/events"
	case errors.As(err, &future):
		p.Detail = "this ledger has not reached " + future.Position.String() + ": the position is from another ledger, or this one was restored from a backup"
		p.Hint = "start again without Last-Event-ID and after"
	default:
		return err
	}
	return problemError{p, err}
}

// wireFeedEvent converts an event of the feed.
func wireFeedEvent(e *flight.FeedEvent) wire.Event {
	shown := wire.EventOf(e.Version, &e.Event)
	if e.Key.IsZero() {
		shown.Document = e.Document.String()
		return shown
	}
	shown.Key, shown.FlightID, shown.Count = e.Key.String(), e.Key.FlightID().String(), e.Count
	return shown
}
