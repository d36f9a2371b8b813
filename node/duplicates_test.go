package node

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// embedded starts a node for a program that embeds it.
func embedded(tb testing.TB) Ready {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Ready, 1), make(chan error, 1)
	cfg := Dev(tb.TempDir(), "127.0.0.1:0")
	cfg.Ready = func(r Ready) { ready <- r }
	go func() { done <- Run(ctx, cfg) }()
	tb.Cleanup(func() {
		cancel()
		err := <-done
		require.NoError(tb, err, "the node ended with %v", err)
		http.DefaultClient.CloseIdleConnections()
	})
	select {
	case r := <-ready:
		return r
	case err := <-done:
		done <- nil
		tb.Fatalf("the node did not start: %v", err)
		return Ready{}
	}
}

func done(context.Context, *effect.Attempt) (effect.Answer, error) {
	return effect.Answer{Body: []byte("{}")}, nil
}

// Duplicate calls in this process are counted, of callers that joined a running call and of later callers.
func TestDuplicatesInThisProcessAreCounted(t *testing.T) {
	t.Parallel()
	r := embedded(t)
	call := effect.Call{Key: flight.MustKey("test/charge/1")}
	start, entered := make(chan struct{}), make(chan struct{}, 10)
	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() {
			_, err := r.Executor.Do(t.Context(), call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
				entered <- struct{}{}
				<-start
				return done(ctx, at)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	close(start)
	callers.Wait()
	for range 3 {
		_, err := r.Executor.Do(t.Context(), call, done)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		answer, err := http.Get(r.URL + "/v1/flights/" + call.Key.FlightID().String() + "/events")
		require.NoError(t, err)
		defer answer.Body.Close()
		var h wire.History
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&h))
		return h.Duplicates != nil && h.Duplicates.Count == 7
	}, waitLimit, 10*time.Millisecond, "the ledger lacks the 7 duplicates")
}
