package flight_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// The span of an attempt is the same at every node, and another one for each attempt and each key. Links to it are stored elsewhere, so its id
// never changes.
func TestSpan_OfAnAttempt(t *testing.T) {
	call := flight.Trace{0: 1, 15: 2, 16: 3, 23: 4}
	require.Equal(t, "00-01000000000000000000000000000002-0300000000000004-01", call.Traceparent())
	f := &flight.Flight{ID: soloKey.FlightID()}
	span := f.Span(&flight.Attempt{Nonce: nonce1, Trace: call})
	require.Equal(t, "00-01000000000000000000000000000002-b548a90a18e57f86-01", span.Traceparent())
	require.NotEqual(t, span, f.Span(&flight.Attempt{Nonce: nonce2, Trace: call}))
	require.NotEqual(t, span, (&flight.Flight{ID: stepKey.FlightID()}).Span(&flight.Attempt{Nonce: nonce1, Trace: call}))
	require.Zero(t, f.Span(&flight.Attempt{Nonce: nonce1}))
	require.Zero(t, f.Span(nil))
	require.Empty(t, flight.Trace{}.Traceparent())
}
