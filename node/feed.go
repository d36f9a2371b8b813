package node

import (
	"context"
	"errors"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/wire"
)

// Read implements httpapi.Feed.
func (d door) Read(after flight.Version, limit int) (httpapi.FeedPage, error) {
	page, err := d.Store.Feed(after, limit)
	var cut *clusterstore.CutError
	switch {
	case errors.As(err, &cut):
		return httpapi.FeedPage{}, &httpapi.CutError{First: cut.First}
	case errors.Is(err, clusterstore.ErrAhead):
		return httpapi.FeedPage{}, &httpapi.AheadError{Place: after}
	}
	return feedPage(page), ledgerError(err)
}

// Last implements httpapi.Feed.
func (d door) Last(n int, fits, enough func(*httpapi.FeedEvent) bool) (httpapi.FeedPage, error) {
	judge := func(f func(*httpapi.FeedEvent) bool) func(*clusterstore.FeedEvent) bool {
		if f == nil {
			return nil
		}
		return func(e *clusterstore.FeedEvent) bool {
			shown := feedEvent(e)
			return f(&shown)
		}
	}
	page, err := d.FeedLast(n, judge(fits), judge(enough))
	return feedPage(page), ledgerError(err)
}

// Await implements httpapi.Feed.
func (d door) Await(ctx context.Context, after flight.Version) error {
	return stopping(d.FeedWait(ctx, after))
}

// Wait implements httpapi.Ledger.
func (d door) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	f, err := d.Store.Wait(ctx, id, seen)
	return f, stopping(err)
}

// stopping turns the error of a closed ledger into "draining": the ledger is closed only while the node stops.
func stopping(err error) error {
	if errors.Is(err, clusterstore.ErrClosed) {
		err = &effect.Unavailable{Code: string(wire.Draining), Cause: err}
	}
	return err
}

func feedPage(page clusterstore.FeedPage) httpapi.FeedPage {
	shown := httpapi.FeedPage{Events: make([]httpapi.FeedEvent, len(page.Events)), Next: page.Next, More: page.More}
	for i := range page.Events {
		shown.Events[i] = feedEvent(&page.Events[i])
	}
	return shown
}

func feedEvent(e *clusterstore.FeedEvent) httpapi.FeedEvent {
	return httpapi.FeedEvent{Key: e.Key, Event: httpapi.Event(e.HistoryEvent), Count: e.Count}
}
