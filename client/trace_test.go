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

// TestTraceIsPassedOn: from the caller's context with every request for its call, over both ways to a server, and to
// the provider.
func TestTraceIsPassedOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	g := newRig(t)
	var mu sync.Mutex
	seen := make(map[string]string)
	g.on(func(r *http.Request) fault {
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
	proxied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.server.Config.Handler.ServeHTTP(w, r) }))
	defer proxied.Close()
	for name, address := range map[string]string{"plainly": g.server.URL, "through net/http": "http://user@" + proxied.Listener.Addr().String()} {
		c := g.connectTo(address)
		one := call(`1`)
		one.Key = flight.MustKey("default/trace/" + map[bool]string{true: "a", false: "b"}[name == "plainly"])
		_, err := c.Do(client.WithTraceparent(t.Context(), parent), one, send)
		require.NoError(t, err, name)
		require.Equal(t, parent, <-outside, name)
		mu.Lock()
		require.Equal(t, parent, seen["/v1/flights:open"], name)
		require.Equal(t, parent, seen["/v1/flights/"+one.Key.FlightID().String()+"/report"], name)
		require.Empty(t, seen["/version"], "what is for no call belongs to no trace")
		clear(seen)
		mu.Unlock()
	}
}

// A look-up belongs to the trace of its call, as the effect does.
func TestALookUpIsTraced(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := newRig(t).connect()
	verify := call(`1`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Millisecond})
	verify.LookUp = func(_ context.Context, at *effect.Attempt) (flight.Verb, effect.Answer, error) {
		return flight.Happened, effect.Answer{ExternalID: at.Traceparent()}, nil
	}
	result, err := c.Do(client.WithTraceparent(t.Context(), parent), verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, errors.New("connection lost")
	})
	require.NoError(t, err)
	require.Equal(t, parent, result.Answer.ExternalID)
}

// TestEveryLineAboutAReportHasItsKey: of one that waits, of one that is recorded at last, and of one that never will be.
func TestEveryLineAboutAReportHasItsKey(t *testing.T) {
	g := newRig(t)
	g.unrecorded()
	g.on(nil)
	c := g.connect()
	g.until(key, func(f *flight.Flight) bool { return f.State.Terminal() })
	_, err := c.Record(key, client.ReportRequest{FencingToken: "x", Outcome: "succeeded"})
	require.Error(t, err)
	require.NoError(t, c.Close(t.Context()))
	text := strings.TrimSpace(g.logged())
	for _, want := range []string{"its report waits in", "is recorded", "put aside"} {
		require.Contains(t, text, want)
	}
	for line := range strings.Lines(text) {
		require.Contains(t, line, " key="+key.String(), "so that one search finds the story")
	}
}
