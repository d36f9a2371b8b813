package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestInput(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	for name, data := range map[string]string{"text/plain": "\x00\xff exactly", "application/json": `{ "cents" : 4200 }`} {
		key := flight.MustKey("default/charge/" + name[:4])
		g.fake.Apply(t, &flight.Submit{Key: key, Submission: flight.Submission{Input: flight.NewBlob(name, []byte(data), flight.MaxInput)}})
		in, err := c.Input(t.Context(), key.FlightID())
		require.NoError(t, err)
		require.Equal(t, &client.InputBody{ContentType: name, Data: []byte(data), Digest: flight.NewBlob(name, []byte(data), flight.MaxInput).Digest.String()}, in)
	}

	without := flight.MustKey("default/charge/without")
	g.fake.Apply(t, &flight.Import{Key: without, Outcome: flight.OutcomeSucceeded})
	for _, key := range []flight.Key{without, flight.MustKey("default/charge/unused")} {
		_, err := c.Input(t.Context(), key.FlightID())
		var missing *client.Missing
		require.ErrorAs(t, err, &missing, "%v", key)
	}

	erased := flight.MustKey("default/charge/text")
	g.fake.Apply(t, &flight.Cancel{Key: erased, Generation: 1, Actor: "ann", Reason: "a test"})
	g.fake.Apply(t, &flight.Redact{Key: erased, Generation: 1, Actor: "ann", Reason: "a test"})
	_, err := c.Input(t.Context(), erased.FlightID())
	require.Equal(t, wire.Expired, client.CodeOf(err), "%v", err)
}
