package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// A Close without patience falls into many calls, at any of their requests: what was not acted on leaves no doubt, and
// nobody acts on what is given back.
func TestRealDeskCloseLeavesNoDoubt(t *testing.T) {
	const crowd = 60
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 8 {
		var left atomic.Int64
		left.Store(-1)
		now := make(chan struct{})
		fd, c := realDesk(t, func(*http.Request) fault {
			if left.Add(-1) == 0 {
				close(now)
			}
			return none
		})
		(&rig{t: t}).warm(c)
		left.Store(1 + random.Int64N(2*crowd)) // an open and a report each
		var acted sync.Map
		var calls sync.WaitGroup
		for i := range crowd {
			calls.Go(func() {
				one := crowdCall(i)
				_, _ = c.Do(context.Background(), one, func(context.Context, *effect.Attempt) (effect.Answer, error) {
					acted.Store(one.Key, true)
					return effect.Answer{}, nil
				})
			})
		}
		<-now
		_ = within(t, closes(t, c, 0))
		calls.Wait()
		for i := range crowd {
			if one := crowdCall(i); fd.Flight(one.Key) != nil {
				if _, did := acted.Load(one.Key); !did {
					settledUnsent(t, fd.Ledger, one.Key)
				}
			}
		}
	}
}

func crowdCall(i int) effect.Call {
	one := call(`1`)
	one.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", i))
	return one
}

// settledUnsent waits until a flight that nobody acts on is free again, and without doubt.
func settledUnsent(t *testing.T, ledger interface {
	Wait(context.Context, flight.ID, flight.Version) (*flight.Flight, error)
}, key flight.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var seen flight.Version
	for {
		f, err := ledger.Wait(ctx, key.FlightID(), seen)
		require.NoError(t, err, "%s stays in the air", key)
		require.NotEqual(t, flight.InDoubt, f.State, "%s: %s", key, f.Cause)
		if f.OpenAttempt() == nil {
			require.False(t, f.Tainted(), key)
			return
		}
		seen = f.Version
	}
}
