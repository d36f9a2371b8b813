package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// The first answer of each route is lost, and each effect happens once.
func TestEveryAnswerIsLostOnce(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	seen := map[string]int{}
	g.setFault(func(r *http.Request) fault {
		if seen[r.URL.Path]++; seen[r.URL.Path] == 1 && r.Method == http.MethodPost {
			return cutAfter
		}
		return none
	})
	for i := range 3 {
		charge := call(`1`)
		charge.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i))
		result, err := c.Do(t.Context(), charge, succeedingHandler(`1`))
		require.NoError(t, err)
		require.EqualValues(t, 1, result.Attempt)
		require.EqualValues(t, 1, g.flight(charge.Key).AttemptCount)
	}
}

// Many callers, many keys, several of each.
func TestCrowd(t *testing.T) {
	c := newFixture(t).connect()
	var ran atomic.Int32
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			charge := call(`1`)
			charge.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i/4))
			result, err := c.Do(t.Context(), charge, func(context.Context, *effect.Attempt) (effect.Answer, error) {
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
func TestDoubt(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	lost := func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.NoError(t, at.Sending())
		return effect.Answer{}, errors.New("connection lost")
	}
	_, err := c.Do(t.Context(), call(`1`), lost)
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	_, err = c.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.ErrorAs(t, err, &doubt)
	settle := client.ResolveRequest{Result: "happened", Reason: "seen"}
	settle.ExternalID, settle.JSON = "ch_1", []byte(`{"id":"ch_1"}`)
	_, err = c.Resolve(t.Context(), key.FlightID(), doubt.Version.String(), settle)
	require.NoError(t, err)
	result, err := c.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.NoError(t, err)
	require.Equal(t, `{"id":"ch_1"}`, string(result.Answer.Body))

	verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
	verify.Key = flight.MustKey("default/charge/verify")
	found := []flight.Finding{flight.FindingNone, flight.FindingNotHappened}
	verify.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		verb := found[0]
		found = found[1:]
		g.fake.Ledger.Advance(2 * time.Second) // the backoff after a look-up that could not find out
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

// A Close with an ended ctx interrupts many calls at any of their requests. Calls that did not act leave no doubt.
func TestCloseLeavesNoDoubt(t *testing.T) {
	const crowd = 60
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range 12 {
		var left atomic.Int64
		left.Store(-1)
		now := make(chan struct{})
		g := newFixture(t)
		requests, opts := int64(2*crowd), []client.Option{client.WithoutBatches()} // an open and a report each
		if round%3 > 0 {
			requests, opts = 4, nil // two batches of opens and two of reports, at least
		}
		c := g.connect(opts...)
		g.useSession(c)
		g.setFault(func(*http.Request) fault {
			if left.Add(-1) == 0 {
				close(now)
			}
			return none
		})
		left.Store(1 + random.Int64N(requests))
		var acted sync.Map
		var calls sync.WaitGroup
		for i := range crowd {
			calls.Go(func() {
				charge := crowdCall(i)
				_, _ = c.Do(context.Background(), charge, func(context.Context, *effect.Attempt) (effect.Answer, error) {
					acted.Store(charge.Key, true)
					return effect.Answer{}, nil
				})
			})
		}
		<-now
		_ = receive(t, closeInBackground(t, c, 0))
		calls.Wait()
		for i := range crowd {
			if charge := crowdCall(i); g.flight(charge.Key) != nil {
				if _, did := acted.Load(charge.Key); !did {
					g.settledUnsent(charge.Key)
				}
			}
		}
	}
}

func crowdCall(i int) effect.Call {
	charge := call(`1`)
	charge.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i))
	return charge
}

// settledUnsent waits until a flight without an effect is ready again, without a doubt.
func (fi *fixture) settledUnsent(key flight.Key) {
	fi.t.Helper()
	fi.waitForFlight(key, func(f *flight.Flight) bool {
		require.NotEqual(fi.t, flight.StateInDoubt, f.State, "%s: %s", key, f.Cause)
		return f.OpenAttempt() == nil && !f.Tainted()
	})
}
