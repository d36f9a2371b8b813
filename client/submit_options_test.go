package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

// A duration that would become 0, which often means no limit, and a lane that would be dropped are rejected.
func TestOptionsThatWouldBeDropped(t *testing.T) {
	c := newFixture(t).connect()
	for field, option := range map[string]client.JobOption{
		"delay": client.Delay(time.Microsecond), "timeout": client.Timeout(time.Nanosecond), "window": client.Resend(time.Microsecond),
		"retry.max": client.Retry{Attempts: 2, Max: time.Microsecond}, "lane": client.Lane("\xff"),
		"provider_window": client.JobPolicy(flight.Policy{ProviderWindow: time.Microsecond}),
	} {
		_, err := c.Submit(t.Context(), client.Key("odd", "1"), nil, option)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	_, err := c.Submit(t.Context(), client.Key("odd", "1"), nil, client.Lane(""))
	require.ErrorContains(t, err, "lane")
	_, err = c.SubmitJob(t.Context(), client.SubmitRequest{Action: "odd", ID: "1", Lane: "\xff"})
	require.ErrorContains(t, err, "lane")
	_, err = client.Do(t.Context(), c, client.Key("odd", "1"), nil, func(context.Context, client.Attempt) (any, error) { return nil, nil },
		client.WithPolicy(flight.Policy{AttemptTimeout: time.Microsecond}))
	require.ErrorAs(t, err, new(*flight.InvalidError))
	_, err = client.Do(t.Context(), c, client.Key("odd", "1"), "\xff", func(context.Context, client.Attempt) (any, error) { return nil, nil })
	require.ErrorContains(t, err, "input: json: a text is not valid UTF-8")
}
