package httpapi

import (
	"context"

	"github.com/flightd/flightd/flight"
)

// Feed returns the events of all flights, in log order, as far as this node has applied the log.
type Feed interface {
	// Read returns about limit events after a position. It never splits the events of one command. A page may be empty
	// although More is set. Errors: *CompactedError, *FuturePositionError, or the read error.
	Read(after flight.Version, limit int) (flight.FeedPage, error)
	// Last returns the last n events that match, and the position after all events. It returns more than n rather than
	// split the events of one command. It scans backwards until stop returns true; with a nil stop, the implementation
	// chooses how far.
	Last(n int, match, stop func(*flight.FeedEvent) bool) (flight.FeedPage, error)
	// Await returns when there may be events after the position. Errors: the error of ctx, or that the ledger is
	// closed.
	Await(ctx context.Context, after flight.Version) error
}
