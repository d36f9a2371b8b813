package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

func TestDoOnceThenReplay(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	var at *effect.Attempt
	result, err := c.Do(t.Context(), call(`{"amount": 1}`), func(_ context.Context, a *effect.Attempt) (effect.Answer, error) {
		at = a
		return effect.Answer{ExternalID: "ch_1", ContentType: "application/json", Body: []byte(`{"id": "ch_1"}`)}, nil
	})
	require.NoError(t, err)
	require.Equal(t, effect.SourceExecuted, result.Source)
	require.Equal(t, `{"id": "ch_1"}`, string(result.Answer.Body), "byte for byte")
	require.Equal(t, "ch_1", result.Answer.ExternalID)
	require.EqualValues(t, 1, result.Attempt)
	require.Equal(t, key, at.Key())
	require.EqualValues(t, 1, at.Number())
	require.Equal(t, `{"amount": 1}`, string(at.Input()))
	require.NotEmpty(t, at.IdempotencyKey())
	require.NotEmpty(t, at.FencingToken())
	require.Nil(t, at.Previous())

	again, err := g.connect().Do(t.Context(), call(`{"amount":1.0}`), unreachableHandler(t))
	require.NoError(t, err)
	require.Equal(t, effect.SourceReplayed, again.Source)
	require.Equal(t, result.Answer, again.Answer)
	require.Equal(t, result.Digest, again.Digest)
	require.Equal(t, result.At, again.At)
	require.Zero(t, g.count("/v1/sessions"), "neither one effect nor replays need a session that is kept")
	g.waitForNoSessions()
}

// 100 callers in two clients: one effect, one result.
func TestDoManyCallers(t *testing.T) {
	g := newFixture(t)
	clients := []*client.Client{g.connect(), g.connect()}
	var ran atomic.Int32
	var sources [3]atomic.Int32
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			result, err := clients[i%2].Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
				ran.Add(1)
				return effect.Answer{Body: []byte("x"), ContentType: "text/plain"}, nil
			})
			if err != nil || string(result.Answer.Body) != "x" {
				t.Errorf("%v %v", result, err)
			}
			sources[result.Source].Add(1)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, ran.Load())
	require.EqualValues(t, 1, sources[effect.SourceExecuted].Load())
	require.LessOrEqual(t, g.count(":open"), 60, "callers of one key in one client share one wait")
}

// A pause that the provider asks for is the caller's to keep.
func TestRetryAfterIsTold(t *testing.T) {
	_, err := newFixture(t).connect().Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, effect.RetryAfter(client.NotDone(errors.New("too many")), time.Minute)
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, time.Minute, effect.RequestedPause(err))
}

func TestDoRefusesWhatCannotTravel(t *testing.T) {
	c := newFixture(t).connect()
	for _, bad := range []effect.Call{
		{},
		call(`1`, flight.Policy{Recovery: flight.RecoveryVerify}),
		call(`1`, flight.Policy{AttemptTimeout: -1}),
		call(`1`, flight.Policy{Retry: flight.RetryPolicy{Attempts: 2}}),
		{Key: key, Submission: flight.Submission{Input: flight.NewBlob("text/plain", []byte("x"), 10)}},
	} {
		var invalid *flight.InvalidError
		_, err := c.Do(t.Context(), bad, unreachableHandler(t))
		require.ErrorAs(t, err, &invalid)
	}
	_, err := c.Do(t.Context(), call(`1`), nil)
	require.Error(t, err)
}

// A cancellation is requested: the next renewal cancels the context of the attempt.
func TestCancelReachesTheAttempt(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect(client.WithActor("eve"))
	started := make(chan struct{})
	go func() {
		<-started
		f, err := c.Flight(t.Context(), key.FlightID())
		if err == nil {
			_, err = c.Cancel(t.Context(), key.FlightID(), f.Version, client.OperatorRequest{Reason: "not wanted"})
		}
		if err != nil {
			t.Error(err)
		}
	}()
	_, err := c.Do(t.Context(), call(`1`), func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-ctx.Done()
		return effect.Answer{}, client.NotDone(context.Cause(ctx))
	})
	var failed *client.Failed
	require.ErrorAs(t, err, &failed)
	require.Equal(t, flight.StateCancelled, failed.State)
	require.Equal(t, "eve", g.flight(key).Cancel.Actor)
}

// A receipt over the limit is shortened on the way and never a failed attempt.
func TestLongAnswer(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	long := []byte(strings.Repeat("é", 20<<20))
	result, err := c.Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{ContentType: "text/plain\r\nx: y", Body: long}, nil
	})
	require.NoError(t, err)
	require.True(t, result.Truncated)
	require.Equal(t, len(long), result.Size)
	require.Equal(t, flight.NewBlob("", long, 0).Digest, result.Digest)
	require.Equal(t, long[:flight.MaxReceiptBody], result.Answer.Body)
	receipt, err := c.Receipt(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Equal(t, len(long), receipt.Size)
	require.Equal(t, result.Answer.Body, receipt.Data)
}

// With two servers, of which the first is down, calls succeed.
func TestSeveralServers(t *testing.T) {
	g := newFixture(t)
	dead := newFixture(t)
	dead.server.Close()
	c := g.connectTo(dead.server.URL + "," + g.server.URL)
	_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.NoError(t, err)
	_, err = client.Connect(t.Context(), dead.server.URL, client.WithRetryTimeout(time.Millisecond), client.WithoutSpool())
	var unavailable *client.Unavailable
	require.ErrorAs(t, err, &unavailable)
	require.Equal(t, "unreachable", unavailable.Code)
	for _, bad := range []string{"", "ftp://x", "http://", "http://a/?b=c", " , "} {
		_, err := client.Connect(t.Context(), bad)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, bad)
	}
}
