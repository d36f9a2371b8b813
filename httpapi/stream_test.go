package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// longFeed is a feed with many pages, without a matching event. Reading a page takes a second.
type longFeed struct {
	httpapi.Feed
	pages atomic.Int64
	most  int64
}

func (f *longFeed) Read(after flight.Version, _ int) (flight.FeedPage, error) {
	time.Sleep(time.Second)
	n := f.pages.Add(1)
	return flight.FeedPage{Next: flight.Version{Index: after.Index + 1}, More: n < f.most}, nil
}

func (f *longFeed) Await(ctx context.Context, _ flight.Version) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// timedRecorder records the times of the writes.
type timedRecorder struct {
	*httptest.ResponseRecorder
	writes []time.Time
}

func (r *timedRecorder) SetReadDeadline(time.Time) error  { return nil }
func (r *timedRecorder) SetWriteDeadline(time.Time) error { return nil }

func (r *timedRecorder) Write(b []byte) (int, error) {
	r.writes = append(r.writes, time.Now())
	return r.ResponseRecorder.Write(b)
}

// followLong streams a long feed for a duration. It returns the response and the number of pages read.
func followLong(t *testing.T, d time.Duration, pages int64) (*timedRecorder, int64) {
	cfg := httpapitest.New(t).Config()
	feed := &longFeed{Feed: cfg.Feed, most: pages}
	cfg.Feed = feed
	api := httpapi.New(cfg)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	w := &timedRecorder{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events?after=0.0&kind=overlap", nil)
	r.Header.Set("Accept", "text/event-stream")
	api.ServeHTTP(w, r)
	return w, feed.pages.Load()
}

// TestStream_HeartbeatsDuringLongCatchUp: a stream that reads a long log without a match sends heartbeats with its
// position, so that a reader that disconnects need not start again.
func TestStream_HeartbeatsDuringLongCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := followLong(t, 5*time.Minute, 120)
		last := w.writes[0]
		for _, at := range w.writes {
			require.Less(t, at.Sub(last), 30*time.Second, "clients disconnect from a silent stream after 45 s")
			last = at
		}
		ids := strings.Count(w.Body.String(), "\nid: ")
		require.Greater(t, ids, 5)
	})
}

// TestStream_EndsWithItsReader: the feed is not read on after the reader has disconnected.
func TestStream_EndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, pages := followLong(t, 10*time.Second, 1000)
		require.Less(t, pages, int64(20))
		require.Less(t, time.Since(start), 20*time.Second)
	})
}

// TestFlightEvents_FuturePositionIsRejected: a position of another ledger, or from before a restore, is rejected. It
// would hide all events until the ledger reached it.
func TestFlightEvents_FuturePositionIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := httpapitest.New(t)
		api := httpapi.New(world.Config())
		key := flight.MustKey("default/charge/1")
		place := world.Apply(t, &flight.Submit{Key: key}).Flight.Version
		for _, kind := range []string{"application/json", "text/event-stream"} {
			for id, want := range map[string]int{"999999.0": http.StatusGone, place.String(): http.StatusOK} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/flights/"+key.FlightID().String()+"/events", nil)
				r.Header.Set("Accept", kind)
				r.Header.Set("Last-Event-ID", id)
				w := &timedRecorder{ResponseRecorder: httptest.NewRecorder()}
				api.ServeHTTP(w, r)
				cancel()
				require.Equal(t, want, w.Code, "%s %s", kind, id)
				if want == http.StatusGone {
					require.Contains(t, w.Body.String(), "without Last-Event-ID")
				}
			}
		}
	})
}

// closingFeed is the feed of a node that stops while a reader waits for it to catch up.
type closingFeed struct{ httpapi.Feed }

func (closingFeed) Await(context.Context, flight.Version) error { return effect.ErrClosed }

// TestEvents_FuturePositionOnStoppingNode: a stopping node cannot know whether the position is from another ledger, so
// its answer is retryable.
func TestEvents_FuturePositionOnStoppingNode(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Feed = closingFeed{c.Feed} })
	id := d.proceed(`{"action":"charge","id":"1"}`).FlightID
	for _, path := range []string{"/v1/events?after=999999.0", "/v1/flights/" + id + "/events?after=999999.0"} {
		p := requireProblem(t, d.get(path), http.StatusServiceUnavailable, wire.Draining)
		require.True(t, p.Retryable)
	}
}

// TestTooManyStreams: a stream over the limit is rejected as rate_limited, as documented.
func TestTooManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := checker(t).Watch(httpapi.New(httpapitest.New(t).Config()), func(err error) { t.Errorf("not as documented: %v", err) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ask := func() *timedRecorder {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil)
			r.Header.Set("Accept", "text/event-stream")
			w := &timedRecorder{ResponseRecorder: httptest.NewRecorder()}
			api.ServeHTTP(w, r)
			return w
		}
		for range 1024 {
			go ask()
		}
		synctest.Wait()
		w := ask()
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Contains(t, w.Body.String(), `"code":"rate_limited"`)
		require.Contains(t, w.Body.String(), `"hint":`)
		cancel()
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, http.StatusOK, ask().Code, "closed streams no longer count")
	})
}
