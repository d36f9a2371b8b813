package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

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
