//go:build clients

package conformance

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// newReader returns a client behind a proxy that gives every request to another node and adds no faults, until stop.
func (s *soak) newReader() (c *client.Client, stop func()) {
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, Transport: s.server.transport(), ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			if target, err := url.Parse(s.server.address()); err == nil {
				r.SetURL(target)
			}
			if a := s.server.access; a != nil {
				r.Out.Header.Set("Authorization", "Bearer "+a.token(s))
			}
		},
	})
	c, err := client.Connect(s.Context(), proxy.URL, client.WithoutSpool())
	require.NoError(s, err)
	return c, func() { _ = c.Close(context.Background()); proxy.CloseClientConnections(); proxy.Close() }
}

// readFlights reads the flights of the callers until ctx ends. No flight gets an older version than the reader has seen, and none is
// open after its end.
func (s *soak) readFlights(ctx context.Context) {
	c, stop := s.newReader()
	defer stop()
	seen, reads := map[string]*client.Flight{}, 0
	for ctx.Err() == nil {
		s.mu.Lock()
		var ids []string
		for n := range s.usedKeys {
			ids = append(ids, s.keyOf(n).id)
		}
		s.mu.Unlock()
		for _, id := range ids {
			f, err := c.Flight(ctx, flight.MustKey("default/charge/"+id).FlightID())
			before := seen[id]
			missing := new(effect.Missing)
			switch {
			case err != nil && (before == nil || !errors.As(err, &missing)):
				continue
			case err != nil:
				s.Errorf("time went back: %s was %s at %s, and then unknown", id, before.State, before.Version)
			case before != nil && (s.version(before.Version).After(s.version(f.Version)) || before.Receipt != nil && f.Receipt == nil):
				s.Errorf("time went back: %s was %s at %s, and then %s at %s", id, before.State, before.Version, f.State, f.Version)
			}
			seen[id], reads = f, reads+1
		}
	}
	s.Logf("%d reads of %d flights", reads, len(seen))
}

func (s *soak) version(text string) flight.Version {
	v, err := flight.ParseVersion(text)
	if err != nil {
		s.Errorf("version %q: %v", text, err)
	}
	return v
}

// readFeed reads the feed until ctx ends, page by page and as a stream. Neither goes back, and both have the same events.
func (s *soak) readFeed(ctx context.Context) {
	c, stop := s.newReader()
	defer stop()
	first, err := c.EventPage(ctx, client.EventQuery{}, 0)
	require.NoError(s, err)
	var pages, stream []string
	var streaming sync.WaitGroup
	streaming.Go(func() {
		for e, err := range c.Events(ctx, client.EventQuery{After: first.Next}) {
			if err != nil {
				if ctx.Err() == nil {
					s.Errorf("the stream of events ended: %v", err)
				}
				break
			}
			if e.ID != "" {
				stream = s.appendEvent(stream, e.ID)
			}
		}
	})
	for next := first.Next; ctx.Err() == nil; {
		page, err := c.EventPage(ctx, client.EventQuery{After: next}, time.Second)
		if err != nil {
			continue
		}
		for _, e := range page.Events {
			pages = s.appendEvent(pages, e.ID)
		}
		if s.version(next).After(s.version(page.Next)) {
			s.Errorf("time went back: the feed was at %s, and then at %s", next, page.Next)
		}
		next = page.Next
	}
	streaming.Wait()
	both := min(len(pages), len(stream))
	require.NotZero(s, both, "pages have %d events, the stream has %d", len(pages), len(stream))
	require.Equal(s, pages[:both], stream[:both])
	s.Logf("%d events in pages, %d in the stream", len(pages), len(stream))
}

// appendEvent appends the id of an event. The stream may repeat its last event when it is resumed.
func (s *soak) appendEvent(ids []string, id string) []string {
	if len(ids) > 0 {
		switch last := ids[len(ids)-1]; {
		case last == id:
			return ids
		case s.version(last).After(s.version(id)):
			s.Errorf("time went back: the feed had event %s, and then %s", last, id)
		}
	}
	return append(ids, id)
}
