package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

func submit(g *fixture, n int) {
	g.fake.Apply(g.t, &flight.Submit{Key: flight.MustKey(fmt.Sprintf("default/charge/%d", n))})
}

// cutWriter is a response that ends after a number of bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(data []byte) (int, error) {
	if len(data) > w.left {
		_, _ = w.ResponseWriter.Write(data[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(data)
	return w.ResponseWriter.Write(data)
}

// Streams that break anywhere, even within an event, lose no event. Only the events of one command may come twice.
func TestEventsOverBrokenStreams(t *testing.T) {
	fake := httpapitest.New(t)
	cfg := fake.Config()
	cfg.Events.Heartbeat = 5 * time.Millisecond
	api := httpapi.New(cfg)
	var mu sync.Mutex
	cuts, bytes := 0, 150
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			mu.Lock()
			cuts++
			bytes += 37
			w = &cutWriter{ResponseWriter: w, left: bytes}
			mu.Unlock()
		}
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	g := &fixture{t: t, fake: fake, server: server, spool: t.TempDir()}
	c := g.connect()
	const flights = 20
	lost := 0
	seen := make(map[string]int)
	submit(g, 0)
	for e, err := range c.Events(t.Context(), client.EventQuery{After: "0.0", OnDisconnect: func(err error) { require.Error(t, err); lost++ }}) {
		require.NoError(t, err)
		require.Equal(t, "submitted", e.Kind)
		if seen[e.Key]++; seen[e.Key] == 1 && len(seen) < flights {
			submit(g, len(seen))
		}
		if len(seen) == flights {
			break
		}
	}
	require.Positive(t, lost)
	require.Greater(t, cuts, 2)
	for n := range flights {
		require.Equal(t, 1, seen[fmt.Sprintf("default/charge/%d", n)], "flight %d, with %d cuts", n, cuts)
	}
}

func TestEventsEnd(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	submit(g, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for e, err := range c.Events(ctx, client.EventQuery{Last: 5, KeyPrefix: "default/", Action: "charge", Kinds: []string{"submitted"}}) {
		if n++; n == 1 {
			require.NoError(t, err)
			require.Equal(t, "default/charge/1", e.Key)
			cancel()
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, 2, n, "an error is the last that comes")

	g.fake.SetFaults(func(l *httpapitest.Faults) { l.CompactedAt = flight.Version{Index: 50} })
	n = 0
	for _, err := range c.Events(t.Context(), client.EventQuery{After: "1.0"}) {
		n++
		require.Equal(t, wire.Expired, client.CodeOf(err))
	}
	require.Equal(t, 1, n, "no server will ever answer that")
	_, err := c.EventPage(t.Context(), client.EventQuery{After: "1.0"}, 0)
	require.Equal(t, wire.Expired, client.CodeOf(err))
	require.ErrorContains(t, err, "events before 50.0 are no longer in the feed")
	var flight *client.Expired
	require.False(t, errors.As(err, &flight), "it is about no flight")
}

func TestEventPages(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	for n := range 5 {
		submit(g, n)
	}
	page, err := c.EventPage(t.Context(), client.EventQuery{Last: 2}, 0)
	require.NoError(t, err)
	require.Len(t, page.Events, 2)
	go submit(g, 9)
	page, err = c.EventPage(t.Context(), client.EventQuery{After: page.Next}, 20*time.Second)
	require.NoError(t, err)
	require.Equal(t, "default/charge/9", page.Events[0].Key)
	story, err := c.History(t.Context(), flight.MustKey("default/charge/9").FlightID())
	require.NoError(t, err)
	require.Len(t, story.Events, 1)
	require.Nil(t, story.Duplicates)
}

// A log that was truncated between two streams yields a gap, as in an open stream, and does not end the reader.
func TestEventsTellOfAGapBetweenStreams(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	submit(g, 1)
	var kinds []string
	for e, err := range c.Events(t.Context(), client.EventQuery{After: "0.0"}) {
		require.NoError(t, err)
		kinds = append(kinds, e.Kind)
		switch len(kinds) {
		case 1:
			g.fake.SetFaults(func(l *httpapitest.Faults) { l.CompactedAt = flight.Version{Index: 50} })
			g.server.CloseClientConnections()
			continue
		case 2:
			require.Contains(t, e.Note, "50.0")
			for n := range 50 { // until the ledger is past the cut
				submit(g, 100+n)
			}
			continue
		}
		break
	}
	require.Equal(t, []string{"submitted", "gap", "submitted"}, kinds)
}

// History follows the pages of a long history.
func TestHistory_FollowsPages(t *testing.T) {
	fake := httpapitest.New(t)
	handler, pages := httpapi.New(fake.Config()), atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			pages.Add(1)
			q := r.URL.Query()
			q.Set("limit", "1")
			r.URL.RawQuery = q.Encode()
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := client.Connect(t.Context(), server.URL, client.WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	key := flight.MustKey("default/charge/9")
	fake.Apply(t, &flight.Submit{Key: key})
	f, err := c.Flight(t.Context(), key.FlightID())
	require.NoError(t, err)
	_, err = c.Cancel(t.Context(), key.FlightID(), f.Version, client.OperatorRequest{Reason: "no longer wanted"})
	require.NoError(t, err)
	h, err := c.History(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Empty(t, h.Next)
	require.Len(t, h.Events, len(fake.Ledger.History(key)))
	require.Greater(t, pages.Load(), int64(1))
}
