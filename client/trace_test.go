package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// The caller's traceparent goes out with every request for its call, to the server and to the provider.
func TestTraceIsPassedOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	g := newFixture(t)
	var mu sync.Mutex
	seen := make(map[string]string)
	g.setFault(func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path] = r.Header.Get("traceparent")
		return none
	})
	outside := make(chan string, 1)
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { outside <- r.Header.Get("traceparent") }))
	defer provider.Close()
	send := func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.Equal(t, parent, at.Traceparent())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, nil)
		require.NoError(t, err)
		return effect.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(req))
	}
	c := g.connect()
	charge := call(`1`)
	_, err := c.Do(client.WithTraceparent(t.Context(), parent), charge, send)
	require.NoError(t, err)
	require.Equal(t, parent, <-outside)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, parent, seen["/v1/flights:open"])
	require.Equal(t, parent, seen["/v1/flights/"+charge.Key.FlightID().String()+"/report"])
	require.Empty(t, seen["/version"], "a request for no call belongs to no trace")
}

// A look-up belongs to the trace of its call, as the effect does.
func TestALookUpIsTraced(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newFixture(t).connect()
	verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
	verify.LookUp = func(_ context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
		return flight.FindingHappened, effect.Answer{ExternalID: at.Traceparent()}, nil
	}
	result, err := c.Do(client.WithTraceparent(t.Context(), parent), verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, errors.New("connection lost")
	})
	require.NoError(t, err)
	require.Equal(t, parent, result.Answer.ExternalID)
}

// Each log line about a report has its key: of a spooled one, of one recorded later, and of a quarantined one.
func TestEveryLineAboutAReportHasItsKey(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	g.setFault(nil)
	c := g.connect()
	g.waitForFlight(key, func(f *flight.Flight) bool { return f.State.Terminal() })
	_, err := c.Record(key, client.ReportRequest{FencingToken: "x", Outcome: "succeeded"})
	require.Error(t, err)
	require.NoError(t, c.Close(t.Context()))
	text := strings.TrimSpace(g.logged())
	for _, want := range []string{"its report waits in", "is recorded", "quarantined"} {
		require.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		require.Contains(t, line, " key="+key.String(), "so that one search finds the story")
	}
}
