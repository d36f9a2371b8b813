package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// flightEvents serves GET /v1/flights/{id}/events: the history of one flight, once or as a stream that continues.
func (a *api) flightEvents(w http.ResponseWriter, r *http.Request) {
	id, bad := flightID(r)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	q, bad := parseEventQuery(r, "after")
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	f, err := a.flightOf(r, id, flight.Key{})
	if err == nil && f == nil {
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	if q.after != nil && a.cfg.Feed != nil {
		if err := a.waitApplied(r.Context(), *q.after); err != nil {
			a.writeFeedError(w, r, err)
			return
		}
	}
	if q.stream {
		a.streamFlight(w, r, f, q.startPosition())
		return
	}
	if q.wait > 0 && q.after != nil {
		if end, ok := a.startWait(r, f.Key); ok {
			defer end()
		} else {
			q.wait = 0
		}
	}
	f, history, err := a.waitHistory(r.Context(), f, &q)
	if bad := a.recheck(r); bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	if err != nil {
		a.writeError(w, r, f.Key, err)
		return
	}
	stats, err := a.cfg.Duplicates.DuplicateStats(id)
	if err != nil {
		a.writeError(w, r, f.Key, err)
		return
	}
	out := wire.History{FlightID: id.String(), Events: make([]wire.Event, len(history)), Duplicates: wire.DuplicateStatsOf(&stats)}
	for i := range history {
		out.Events[i] = wire.EventOf(history[i].Version, &history[i].Event)
	}
	setFlightHeaders(w.Header(), f)
	q.setPreferenceApplied(w.Header())
	a.writeJSON(w, r, http.StatusOK, out)
}

// waitHistory returns a flight and its events after the query's position. If there are none yet, it waits as long as
// the caller prefers.
func (a *api) waitHistory(ctx context.Context, f *flight.Flight, q *eventQuery) (*flight.Flight, []flight.HistoryEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	for {
		history, err := a.cfg.Ledger.History(f.ID)
		if err != nil {
			return f, nil, err
		}
		history = slices.DeleteFunc(history, func(e flight.HistoryEvent) bool { return q.after != nil && !e.Version.After(*q.after) })
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

// allEvents serves GET /v1/events: the events of all flights.
func (a *api) allEvents(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Feed == nil {
		a.writeInvalid(w, r, &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no event feed"}})
		return
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
		a.writeInvalid(w, r, bad)
		return
	}
	if q.stream {
		a.streamFeed(w, r, &q)
		return
	}
	if q.wait > 0 && q.after != nil {
		if end, ok := a.limits.StartWait(cmp.Or(q.namespace, wire.AllNamespaces), false); ok {
			defer end()
		} else {
			q.wait = 0
		}
	}
	events, next, err := a.feedPage(r, &q)
	if err != nil {
		a.writeFeedError(w, r, err)
		return
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
	w.Header().Set("Link", "<"+r.URL.Path+"?"+params.Encode()+`>; rel="next"`)
	q.setPreferenceApplied(w.Header())
	a.writeJSON(w, r, http.StatusOK, out)
}

// feedPage returns the events after the query's position, or the last ones if the query has no position. If there are
// none yet, it waits as long as the caller prefers.
func (a *api) feedPage(r *http.Request, q *eventQuery) ([]flight.FeedEvent, flight.Version, error) {
	if q.after == nil {
		if err := a.recheckReader(r, q); err != nil {
			return nil, flight.Version{}, err
		}
		end, err := a.limits.StartScan(cmp.Or(q.namespace, wire.AllNamespaces))
		if err != nil {
			return nil, flight.Version{}, err
		}
		defer end()
		page, err := a.cfg.Feed.Last(q.limit, q.matches, q.stopBefore())
		return page.Events, page.Next, err
	}
	wait, cancel := context.WithTimeout(r.Context(), q.wait)
	defer cancel()
	after := *q.after
	for {
		end, err := a.limits.StartScan(cmp.Or(q.namespace, wire.AllNamespaces))
		if err != nil {
			return nil, after, err
		}
		events, next, more, err := a.collectMatching(wait, r, q, after)
		end()
		if err != nil || len(events) > 0 || more {
			return events, next, err
		}
		after = next
		if a.cfg.Feed.Await(wait, after) != nil {
			return nil, after, a.recheckReader(r, q) // the wait has ended, or the request or the ledger has
		}
	}
}

// recheckReader authenticates the reader of events again, and sets whether it reads those of documents: its token may
// have been changed meanwhile.
func (a *api) recheckReader(r *http.Request, q *eventQuery) error {
	if bad := a.recheck(r); bad != nil {
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
func (a *api) collectMatching(ctx context.Context, r *http.Request, q *eventQuery, after flight.Version) (events []flight.FeedEvent, next flight.Version, more bool, err error) {
	for range maxCollectPages {
		page, err := a.readFeed(ctx, after, max(q.limit, streamBatch))
		if err != nil {
			return nil, after, false, err
		}
		if err := a.recheckReader(r, q); err != nil {
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
func (a *api) readFeed(ctx context.Context, after flight.Version, limit int) (flight.FeedPage, error) {
	page, err := a.cfg.Feed.Read(after, limit)
	var future *flight.FuturePositionError
	if !errors.As(err, &future) {
		return page, err
	}
	if err := a.waitApplied(ctx, after); err != nil {
		return page, err
	}
	return a.cfg.Feed.Read(after, limit)
}

// waitApplied waits up to maxCatchUp until this node has applied a reader's position. It returns *flight.FuturePositionError
// if the node has not: new events would get positions before the reader's, and the reader would miss them.
func (a *api) waitApplied(ctx context.Context, place flight.Version) error {
	if place.Index == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCatchUp)
	defer cancel()
	err := a.cfg.Feed.Await(ctx, flight.Version{Index: place.Index - 1})
	if errors.Is(err, context.DeadlineExceeded) {
		return &flight.FuturePositionError{Position: place}
	}
	return err
}

// writeFeedError answers with the error of a read of the feed.
func (a *api) writeFeedError(w http.ResponseWriter, r *http.Request, err error) {
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
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	a.writeAndLogProblem(w, r, p, err)
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
