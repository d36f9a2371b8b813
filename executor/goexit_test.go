package executor_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A handler that ends its goroutine is of unknown outcome at once: all waiting callers are answered, and the claim is
// released.
func TestGoexit_IsUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
		call, in, out := callOf("1", `{}`, flight.Policy{}), make(chan struct{}), make(chan struct{})
		first := doInBackground(t.Context(), fd, call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(in)
			<-out
			runtime.Goexit()
			return effect.Answer{}, nil
		})
		<-in
		second := doInBackground(t.Context(), fd, call, unreachableHandler(t))
		synctest.Wait()
		began := time.Now()
		close(out)
		for _, done := range []<-chan doResult{first, second} {
			requireAs[*effect.InDoubt](t, (<-done).err)
		}
		require.Zero(t, time.Since(began))
		f := fd.Flight(call.Key)
		require.Equal(t, flight.OutcomeUnknown, f.Newest().Outcome)
		require.False(t, f.Newest().Lost, "the attempt was reported, not lost")
		require.Contains(t, f.Newest().Error, "ended its goroutine")
		waitForReleases(t)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Empty(t, claims)
	})
}
