package httpapi

import (
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Feed returns the events of all flights, in log order, as far as this node has applied the log.
type Feed interface {
	// Read returns about limit events after a position. It never splits the events of one command. A page may be empty
	// although More is set. Errors: *CompactedError, *FuturePositionError, or the read error.
	Read(after flight.Version, limit int) (FeedPage, error)
	// Last returns the last n events that match, and the position after all events. It returns more than n rather than
	// split the events of one command. It scans backwards until stop returns true; with a nil stop, the implementation
	// chooses how far.
	Last(n int, match, stop func(*FeedEvent) bool) (FeedPage, error)
	// Await returns when there may be events after the position. Errors: the error of ctx, or that the ledger is
	// closed.
	Await(ctx context.Context, after flight.Version) error
}

// FeedEvent is one event of any flight.
type FeedEvent struct {
	Key flight.Key
	Event
	Count uint64 // number of duplicates, with flight.EventDuplicates
}

// FeedPage is a part of the feed. Next is the position to continue after; More reports that events after it exist
// already.
type FeedPage struct {
	Events []FeedEvent
	Next   flight.Version
	More   bool
}

// CompactedError reports that the events directly after the requested position were deleted with old log entries.
type CompactedError struct {
	First flight.Version // the feed is complete after this position
}

func (e *CompactedError) Error() string {
	return fmt.Sprintf("httpapi: events before %s are no longer in the feed", e.First)
}

// FuturePositionError reports a position that this node's ledger has not reached.
type FuturePositionError struct{ Position flight.Version }

func (e *FuturePositionError) Error() string {
	return fmt.Sprintf("httpapi: the ledger has not reached %s", e.Position)
}
