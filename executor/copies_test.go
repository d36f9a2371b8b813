package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// Each caller gets its own copy of an unrecorded outcome, and none shares the handler's buffer.
func TestUnrecorded_IsCopiedPerCaller(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, body := callOf("1", `{}`, flight.Policy{}), []byte("paid")
		in, out := make(chan struct{}), make(chan struct{})
		first := doInBackground(t.Context(), fd, call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(in)
			<-out
			fd.Ledger.Cut()
			return effect.Answer{Body: body}, nil
		})
		<-in
		second := doInBackground(t.Context(), fd, call, unreachableHandler(t))
		synctest.Wait()
		close(out)
		ends := map[effect.Source]*effect.Unrecorded{}
		for source, done := range map[effect.Source]<-chan doResult{effect.SourceExecuted: first, effect.SourceJoined: second} {
			ends[source] = requireAs[*effect.Unrecorded](t, (<-done).err)
			require.Equal(t, source, ends[source].Result.Source)
		}
		clear(body)
		require.Equal(t, "paid", string(ends[effect.SourceExecuted].Result.Answer.Body))
		clear(ends[effect.SourceExecuted].Result.Answer.Body)
		require.Equal(t, "paid", string(ends[effect.SourceJoined].Result.Answer.Body))
		fd.Ledger.Heal()
	})
}

// A look-up may reuse its bytes while its finding is not committed yet.
func TestVerification_CopiesLookUpBytes(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, found := callOf("1", `{}`, policyOf(flight.RecoveryVerify)), []byte("paid")
		call.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
			return flight.FindingHappened, effect.Answer{ExternalID: "ch_1", Body: found}, nil
		}
		fd.Ledger.Before(func(c flight.Command) {
			if _, ok := c.(*flight.ReportFinding); ok {
				fd.Ledger.Before(nil)
				fd.Ledger.Cut()
				clear(found)
				time.AfterFunc(time.Second, fd.Ledger.Heal)
			}
		})
		result, err := fd.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, errReset })
		require.NoError(t, err)
		require.Equal(t, "paid", string(result.Answer.Body))
		require.Equal(t, flight.NewBlob("", result.Answer.Body, len("paid")).Digest, result.Digest)
	})
}

// nilUnwrapError is an error whose Unwrap panics for a nil pointer.
type nilUnwrapError struct{ inner error }

func (e *nilUnwrapError) Error() string { return "closed" }
func (e *nilUnwrapError) Unwrap() error { return e.inner }

// An error whose Unwrap method panics must not prevent the report of an effect.
func TestHandler_ErrorWhoseUnwrapPanics(t *testing.T) {
	for _, timeout := range timeouts {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			call := callOf("1", `{}`, flight.Policy{AttemptTimeout: timeout})
			_, err := fd.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{}, (*nilUnwrapError)(nil)
			})
			require.Error(t, err)
			require.False(t, errors.Is(err, errReset), "callers may unwrap their error")
			require.Equal(t, flight.StateInDoubt, fd.Flight(call.Key).State)
		})
	}
}

// doerThen is a Doer that calls after when its Do returns.
type doerThen struct {
	effect.Doer
	after func()
}

func (t doerThen) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	defer t.after()
	return t.Doer.Do(ctx, call, h)
}

// A handler hangs in one attempt and returns after the next attempt has ended: the callers get the receipt, not the
// late result.
func TestTyped_ResultBelongsToItsAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend, AttemptTimeout: 10 * time.Second, Retry: flight.RetryPolicy{Attempts: 3}}
		hung, gone := make(chan struct{}), make(chan struct{})
		late := func() {
			close(hung)
			<-gone
			synctest.Wait()
		}
		got, err := client.Do(t.Context(), doerThen{fd, late}, client.Key("charge", "1"), map[string]int{"cents": 42},
			func(_ context.Context, at client.Attempt) (string, error) {
				if at.Number() == 1 {
					defer close(gone)
					<-hung
					return "first", nil
				}
				return "second", nil
			}, client.WithPolicy(p))
		require.NoError(t, err)
		require.Equal(t, "second", got)
	})
}

// A handler or a look-up that calls Do for its own key would wait for itself. The call is rejected, with and without a
// time-out.
func TestAHandlerThatAsksForItsOwnKey(t *testing.T) {
	for name, p := range map[string]flight.Policy{"": {}, "timed": {AttemptTimeout: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				began := time.Now()
				var inner, elsewhere, after error
				var kept context.Context
				_, err := fd.Do(t.Context(), callOf("1", `{}`, p), func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
					_, inner = fd.Do(ctx, callOf("1", `{}`, p), unreachableHandler(t))
					_, elsewhere = fd.Do(ctx, callOf("2", `{}`, p), func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, nil })
					kept = context.WithoutCancel(ctx)
					return effect.Answer{}, nil
				})
				require.NoError(t, err)
				require.NoError(t, elsewhere)
				require.Equal(t, "key", requireAs[*flight.InvalidError](t, inner).Field)
				_, after = fd.Do(kept, callOf("1", `{}`, p), unreachableHandler(t))
				require.NoError(t, after, "the attempt has ended, so the call does not wait for itself")
				require.Zero(t, time.Since(began))
			})
		})
	}
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, policyOf(flight.RecoveryVerify))
		var inner error
		call.LookUp = func(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
			_, inner = fd.Do(ctx, call, unreachableHandler(t))
			return flight.FindingHappened, effect.Answer{}, nil
		}
		_, err := fd.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, errors.New("connection lost")
		})
		require.NoError(t, err)
		requireAs[*flight.InvalidError](t, inner)
	})
}
