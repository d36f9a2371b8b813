package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

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
