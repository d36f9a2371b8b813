package httpapi

import (
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Feed is everything that happens, in the order of the ledger's log, as this node has it.
type Feed interface {
	// Read gives what happened behind a place: about limit events, never a part of what one command did. It may be
	// empty though there is more. Errors: *CutError, *AheadError, or that of the read.
	Read(after flight.Version, limit int) (FeedPage, error)
	// Last gives the last n events that fit, and the place behind all events; it gives more where it would begin in the
	// middle of what one command did. It looks back no further than enough says; nil: as far as is worth it.
	Last(n int, fits, enough func(*FeedEvent) bool) (FeedPage, error)
	// Await returns when there may be something behind the place. Errors: that of ctx, or the ledger is closed.
	Await(ctx context.Context, after flight.Version) error
}

// FeedEvent is one event of any flight.
type FeedEvent struct {
	Key flight.Key
	Event
	Count uint64 // with flight.EventDuplicates: how many
}

// FeedPage is a part of the feed. Next is the place to go on behind; More says that there is more already.
type FeedPage struct {
	Events []FeedEvent
	Next   flight.Version
	More   bool
}

// CutError says that the feed does not reach back to the place that was asked for.
type CutError struct {
	First flight.Version // behind this place nothing is missing
}

func (e *CutError) Error() string {
	return fmt.Sprintf("httpapi: events before %s are no longer in the feed", e.First)
}

// AheadError says that a place lies behind everything that the ledger has applied.
type AheadError struct{ Place flight.Version }

func (e *AheadError) Error() string {
	return fmt.Sprintf("httpapi: the ledger has not come as far as %s", e.Place)
}

// Tallies count duplicates: calls that were answered without another effect. They must be cheap: every duplicate is
// counted while its caller waits.
type Tallies interface {
	// Duplicate counts one call of a key by somebody.
	Duplicate(key flight.Key, who string)
	// Tally is what was counted so far for a flight; the zero Tally when nothing was.
	Tally(id flight.ID) (flight.Tally, error)
}
