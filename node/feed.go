package node

import (
	"context"
	"errors"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Read implements httpapi.Feed.
func (a ledgerAPI) Read(after flight.Version, limit int) (flight.FeedPage, error) {
	page, err := a.Store.Feed(after, limit)
	return page, ledgerError(err)
}

// Last implements httpapi.Feed.
func (a ledgerAPI) Last(n int, match, stop func(*flight.FeedEvent) bool) (flight.FeedPage, error) {
	page, err := a.FeedLast(n, match, stop)
	return page, ledgerError(err)
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
