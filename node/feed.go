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
func (a ledgerAPI) Read(after flight.Version, limit int) (httpapi.FeedPage, error) {
	page, err := a.Store.Feed(after, limit)
	var cut *clusterstore.CompactedError
	switch {
	case errors.As(err, &cut):
		return httpapi.FeedPage{}, &httpapi.CompactedError{First: cut.First}
	case errors.Is(err, clusterstore.ErrFuturePosition):
		return httpapi.FeedPage{}, &httpapi.FuturePositionError{Position: after}
	}
	return feedPage(page), ledgerError(err)
}

// Last implements httpapi.Feed.
func (a ledgerAPI) Last(n int, match, stop func(*httpapi.FeedEvent) bool) (httpapi.FeedPage, error) {
	convert := func(f func(*httpapi.FeedEvent) bool) func(*clusterstore.FeedEvent) bool {
		if f == nil {
			return nil
		}
		return func(e *clusterstore.FeedEvent) bool {
			shown := feedEvent(e)
			return f(&shown)
		}
	}
	page, err := a.FeedLast(n, convert(match), convert(stop))
	return feedPage(page), ledgerError(err)
}

// Await implements httpapi.Feed.
func (a ledgerAPI) Await(ctx context.Context, after flight.Version) error {
	return stopping(a.FeedWait(ctx, after))
}

// Wait implements httpapi.Ledger.
func (a ledgerAPI) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	f, err := a.Store.Wait(ctx, id, seen)
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
