package node

import (
	"context"
	"encoding/json"
	"fmt"
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
	}, 10*time.Second, 10*time.Millisecond, "the ledger lacks the 7 duplicates")
}

// BenchmarkReplay measures replays of 20,000 keys in turn within the process, with and without the duplicate count.
func BenchmarkReplay(b *testing.B) {
	ex := embedded(b).Executor.(countingDoer)
	calls := make([]effect.Call, 20_000)
	var filling sync.WaitGroup
	for worker := range 64 {
		filling.Go(func() {
			for n := worker; n < len(calls); n += 64 {
				calls[n].Key = flight.MustKey(fmt.Sprintf("test/charge/order-%d", n))
				if _, err := ex.Do(b.Context(), calls[n], done); err != nil {
					b.Error(err)
				}
			}
		})
	}
	filling.Wait()
	for _, c := range []struct {
		name string
		doer effect.Doer
	}{{"counted", ex}, {"plain", ex.Doer}, {"counted", ex}, {"plain", ex.Doer}} {
		b.Run(c.name, func(b *testing.B) {
			for n := range b.N {
				_, err := c.doer.Do(b.Context(), calls[n*7919%len(calls)], done)
				require.NoError(b, err)
			}
		})
	}
}
