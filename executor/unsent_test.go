package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// lostAnswerLedger loses the answer to the first Open, after it has called afterOpen.
type lostAnswerLedger struct {
	*flightdtest.Ledger
	afterOpen    func(*flight.Open)
	failAbandons int // abandons that fail after that
}

func (l *lostAnswerLedger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if _, is := c.(*flight.Abandon); is && l.failAbandons > 0 {
		l.failAbandons--
		return flight.Reply{}, effect.ErrAmbiguous
	}
	o, is := c.(*flight.Open)
	if f := l.afterOpen; is && f != nil {
		l.afterOpen = nil
		_, _ = l.Ledger.Propose(ctx, c)
		f(o)
		return flight.Reply{}, effect.ErrAmbiguous
	}
	return l.Ledger.Propose(ctx, c)
}

// An attempt is lost before its opener receives the answer. Nothing was sent, so the opener abandons it, and repeats
// the abandon if the ledger does not answer.
func TestUnsent_LeavesNoDoubt(t *testing.T) {
	for _, refuse := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			there := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
			here := there.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
				l := &lostAnswerLedger{Ledger: cfg.Ledger.(*flightdtest.Ledger), failAbandons: refuse}
				l.afterOpen = func(o *flight.Open) {
					there.Leases.Etcd.Expire(o.Session.ID)
					require.NoError(t, there.Sweeper.Sweep(t.Context()))
					require.True(t, there.Flight(o.Key).Tainted())
				}
				cfg.Ledger = l
			}})
			call, c := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryHold}), new(countingHandler)
			_, err := here.Do(t.Context(), call, c.handle)
			requireAs[*effect.Unavailable](t, err)
			sleep(t, 10*time.Second)
			require.False(t, here.Flight(call.Key).Tainted())
			result, err := here.Do(t.Context(), call, c.handle)
			require.NoError(t, err)
			require.Equal(t, effect.SourceExecuted, result.Source)
			require.EqualValues(t, 1, c.n.Load())
			require.EqualValues(t, 2, result.Attempt)
		})
	}
}
