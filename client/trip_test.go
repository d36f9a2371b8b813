package client

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// Who comes while the last caller of a trip leaves must not join it any more: it would be told of that one's end.
func TestNobodyJoinsWhatIsBeingLeft(t *testing.T) {
	var ts trips
	call := effect.Call{Key: flight.MustKey("default/charge/order-42")}
	left, first := ts.join(t.Context(), call)
	require.True(t, first)
	var joined *trip
	drop := left.drop
	left.drop = func(cause error) {
		if ts.mu.TryLock() { // nothing keeps anybody from joining at this moment
			ts.mu.Unlock()
			joined, _ = ts.join(t.Context(), call)
		}
		drop(cause)
	}
	left.leave(errors.New("it left"))
	if joined == nil {
		joined, _ = ts.join(t.Context(), call)
	}
	require.NotSame(t, left, joined)
	require.NoError(t, context.Cause(joined.interest))
	joined.drop(nil)
}
