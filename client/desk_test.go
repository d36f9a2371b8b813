package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/wire"
)

// book is the ledger of the test double as the door reads it.
type book struct{ *flightdtest.Ledger }

func (b book) List(httpapi.Query) (httpapi.Page, error) { return httpapi.Page{}, nil }

func (b book) History(id flight.ID) ([]httpapi.Event, error) {
	f, err := b.Flight(id)
	if f == nil || err != nil {
		return nil, err
	}
	var events []httpapi.Event
	for _, e := range b.Ledger.History(f.Key) {
		events = append(events, httpapi.Event{Event: e})
	}
	return events, nil
}

// realDesk is a server over the executor's own desk, with faults on the way.
func realDesk(t *testing.T, fault func(r *http.Request) fault) (*flightdtest.Flightd, *client.Client) {
	t.Helper()
	fd := flightdtest.New(t)
	desk := fd.Desk()
	api := httpapi.New(httpapi.Config{Desk: desk, Sessions: desk, Ledger: book{fd.Ledger}, Operator: fd.Ledger,
		Ready:   func(context.Context) wire.Ready { return wire.Ready{Ready: true} },
		Version: wire.Version{Version: "test", Deployment: fd.Ledger.Header().Deployment}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault != nil && fault(r) == cutAfter {
			api.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := client.Connect(t.Context(), server.URL, client.WithSpool(t.TempDir()), client.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return fd, c
}

// Every answer is lost once, and every flight flies once.
func TestRealDeskLostAnswers(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	fd, c := realDesk(t, func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if seen[r.URL.Path]++; seen[r.URL.Path] == 1 && r.Method == http.MethodPost {
			return cutAfter
		}
		return none
	})
	for i := range 3 {
		one := call(`1`)
		one.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i))
		result, err := c.Do(t.Context(), one, answering(`1`))
		require.NoError(t, err)
		require.EqualValues(t, 1, result.Attempt)
		require.EqualValues(t, 1, fd.Flight(one.Key).AttemptCount)
	}
}

// Many callers, many keys, several of each.
func TestRealDeskCrowd(t *testing.T) {
	_, c := realDesk(t, nil)
	var ran atomic.Int32
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			one := call(`1`)
			one.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i/4))
			result, err := c.Do(t.Context(), one, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				ran.Add(1)
				return effect.Answer{ContentType: "application/json", Body: []byte(`{"ok": true}`)}, nil
			})
			if err != nil || string(result.Answer.Body) != `{"ok": true}` {
				t.Errorf("%+v %v", result, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 100, ran.Load())
}

// Unknown, in doubt, settled, replayed; and verify with its look-up.
func TestRealDeskDoubt(t *testing.T) {
	fd, c := realDesk(t, nil)
	lost := func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.NoError(t, at.Sending())
		return effect.Answer{}, errors.New("connection lost")
	}
	_, err := c.Do(t.Context(), call(`1`), lost)
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	_, err = c.Do(t.Context(), call(`1`), forbidden(t))
	require.ErrorAs(t, err, &doubt)
	settle := client.ResolveRequest{Result: "happened", Reason: "seen"}
	settle.ExternalID, settle.JSON = "ch_1", []byte(`{"id":"ch_1"}`)
	_, err = c.Resolve(t.Context(), key.FlightID(), doubt.Version.String(), settle)
	require.NoError(t, err)
	result, err := c.Do(t.Context(), call(`1`), forbidden(t))
	require.NoError(t, err)
	require.Equal(t, `{"id":"ch_1"}`, string(result.Answer.Body))

	verify := call(`1`, flight.Policy{Recovery: flight.Verify, SettleDelay: time.Millisecond})
	verify.Key = flight.MustKey("default/charge/verify")
	found := []flight.Verb{flight.NoVerb, flight.DidNotHappen}
	verify.LookUp = func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) {
		verb := found[0]
		found = found[1:]
		fd.Ledger.Advance(2 * time.Second) // the backoff after a look-up that could not find out
		return verb, effect.Answer{}, nil
	}
	attempts := 0
	result, err = c.Do(t.Context(), verify, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		if attempts++; attempts == 1 {
			return lost(ctx, at)
		}
		require.EqualValues(t, 2, at.Number())
		return effect.Answer{ContentType: "application/json", Body: []byte(`2`)}, nil
	})
	require.NoError(t, err)
	require.Empty(t, found)
	require.Equal(t, `2`, string(result.Answer.Body))
}
