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

// goexitHandler returns a handler that ends its goroutine in its first n attempts, as a failed require in a test does.
func goexitHandler(n uint32, then effect.Handler) effect.Handler {
	return func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		if at.Number() <= n {
			runtime.Goexit()
		}
		return then(ctx, at)
	}
}

// timeouts are the attempt time-outs of these tests: none, and one minute.
var timeouts = [...]time.Duration{0, time.Minute}

// A handler that ends its goroutine is of unknown outcome at once: all waiting callers are answered, and the claim is
// released.
func TestGoexit_IsUnknownOutcome(t *testing.T) {
	for _, timeout := range timeouts {
		synctest.Test(t, func(t *testing.T) {
			fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
			call, in, out := callOf("1", `{}`, flight.Policy{AttemptTimeout: timeout}), make(chan struct{}), make(chan struct{})
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
}

// A handler that ends its goroutine before it has sent anything is not done, and may send nothing more.
func TestGoexit_BeforeSendIsNotDone(t *testing.T) {
	for _, timeout := range timeouts {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			call := callOf("1", `{}`, flight.Policy{AttemptTimeout: timeout})
			var left *effect.Attempt
			_, err := fd.Do(t.Context(), call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
				left = at
				at.Watch()
				runtime.Goexit()
				return effect.Answer{}, nil
			})
			require.Equal(t, flight.OutcomeNotDone, requireAs[*effect.Unsettled](t, err).Outcome)
			require.Error(t, left.Sending())
			_, err = fd.Do(t.Context(), call, (&countingHandler{}).handle)
			require.NoError(t, err)
		})
	}
}

// The call continues as its policy declares, under the same claim.
func TestGoexit_CallContinuesByPolicy(t *testing.T) {
	for _, timeout := range timeouts {
		for _, recovery := range recoveries {
			t.Run(recovery.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
					p := flight.Policy{Recovery: recovery, AttemptTimeout: timeout, Retry: flight.RetryPolicy{Attempts: 5, MinBackoff: time.Second}}
					call, c := callOf("1", `{}`, p), new(countingHandler)
					call.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
						return flight.FindingNotHappened, effect.Answer{}, nil
					}
					result, err := fd.Do(t.Context(), call, goexitHandler(3, c.handle))
					if recovery == flight.RecoveryHold {
						requireAs[*effect.InDoubt](t, err)
						return
					}
					require.NoError(t, err)
					require.Equal(t, effect.SourceExecuted, result.Source)
					require.EqualValues(t, 4, result.Attempt)
					require.EqualValues(t, 1, c.n.Load())
					again, err := fd.Do(t.Context(), call, unreachableHandler(t))
					require.NoError(t, err)
					require.Equal(t, result.Answer, again.Answer)
				})
			})
		}
	}
}

// Close waits for the report of the handler's end, here to a ledger that does not answer, and every goroutine ends.
func TestGoexit_CloseWaitsForReport(t *testing.T) {
	for _, timeout := range timeouts {
		synctest.Test(t, func(t *testing.T) {
			fd := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
			call := callOf("1", `{}`, flight.Policy{AttemptTimeout: timeout})
			done := doInBackground(t.Context(), fd, call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				fd.Ledger.Stall()
				runtime.Goexit()
				return effect.Answer{}, nil
			})
			synctest.Wait()
			closed := closeInBackground(fd, time.Hour)
			sleep(t, time.Second)
			select {
			case err := <-closed:
				require.FailNow(t, "closed before the report", err)
			default:
			}
			fd.Ledger.Heal()
			requireAs[*effect.InDoubt](t, (<-done).err)
			require.NoError(t, <-closed)
		})
	}
}

// Close times out, and the handler ends its goroutine when its context ends: its end is reported, too.
func TestGoexit_AfterCloseTimeoutIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, in := callOf("1", `{}`, flight.Policy{}), make(chan struct{})
		done := doInBackground(t.Context(), fd, call, func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
			close(in)
			<-ctx.Done()
			runtime.Goexit()
			return effect.Answer{}, nil
		})
		<-in
		require.NoError(t, <-closeInBackground(fd, 3*time.Second))
		requireAs[*effect.InDoubt](t, (<-done).err)
		require.Equal(t, flight.StateInDoubt, fd.Flight(call.Key).State)
	})
}
