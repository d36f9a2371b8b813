package httpapitest

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
)

// Read implements httpapi.Feed. Its pages are small, so that readers must turn them.
func (w *World) Read(after flight.Version, limit int) (httpapi.FeedPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.levers.Cut.Later(after):
		return httpapi.FeedPage{}, &httpapi.CutError{First: w.levers.Cut}
	case after.Later(w.header.Version):
		return httpapi.FeedPage{}, &httpapi.AheadError{Place: after}
	}
	page := httpapi.FeedPage{Next: w.header.Version}
	for _, e := range w.feed {
		if !e.Version.Later(after) {
			continue
		}
		if n := len(page.Events); n >= min(limit, smallPage) && page.Events[n-1].Version != e.Version {
			page.Next, page.More = page.Events[n-1].Version, true
			break
		}
		page.Events = append(page.Events, e)
	}
	return page, nil
}

const smallPage = 3

// Last implements httpapi.Feed.
func (w *World) Last(n int, fits, enough func(*httpapi.FeedEvent) bool) (httpapi.FeedPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := len(w.feed)
	var fit []httpapi.FeedEvent
	for ; from > 0; from-- {
		e := w.feed[from-1]
		if len(fit) >= n && (n == 0 || fit[0].Version != e.Version) {
			break
		}
		if enough != nil && enough(&e) {
			break
		}
		if fits(&e) {
			fit = append([]httpapi.FeedEvent{e}, fit...)
		}
	}
	return httpapi.FeedPage{Events: fit, Next: w.header.Version}, nil
}

// Await implements httpapi.Feed.
func (w *World) Await(ctx context.Context, after flight.Version) error {
	for {
		w.mu.Lock()
		here, changed := w.header.Version, w.changed
		w.mu.Unlock()
		if here.Later(after) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Duplicate implements httpapi.Tallies.
func (w *World) Duplicate(key flight.Key, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := flight.Time(time.Now().UnixMilli()) + w.skew
	sum := w.tallies[key.FlightID()]
	w.tallies[key.FlightID()] = sum.Plus(flight.Tally{Count: 1, First: now, Last: now, Callers: []flight.Caller{{Who: who, At: now}}})
}

// Tally implements httpapi.Tallies.
func (w *World) Tally(id flight.ID) (flight.Tally, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tallies[id], nil
}
