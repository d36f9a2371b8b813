package executor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A flight has ended, and a person frees the key before this process has answered the flight's callers. A later caller
// belongs to the next generation: it does not get the earlier result, and may submit another input.
func TestJoin_EarlierGenerationIsNotJoined(t *testing.T) {
	free := func(f *flight.Flight) flight.Command {
		return &flight.FreeKey{Key: f.Key, Generation: f.Generation, Actor: "test"}
	}
	retry := func(f *flight.Flight) flight.Command {
		return &flight.Retry{Key: f.Key, Generation: f.Generation, Actor: "test"}
	}
	once := flight.Policy{Retry: flight.RetryPolicy{Attempts: 1}}
	for name, c := range map[string]struct {
		input string
		p     flight.Policy
		fails error
		ends  func(*flight.Flight) flight.Command
	}{
		"freed":                           {input: `{"a":1}`, ends: free},
		"freed, and it has another input": {input: `{"a":2}`, ends: free},
		"failed, and tried once more":     {input: `{"a":1}`, p: once, fails: effect.NotDone(errors.New("full")), ends: retry},
	} {
		t.Run(name, func(t *testing.T) {
			var at, on chan struct{}
			var landed atomic.Bool
			bubbleWith(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
				at, on = make(chan struct{}), make(chan struct{})
				cfg.Crash = func(p string) {
					if p == "before-release" && !landed.Swap(true) {
						close(at)
						<-on
					}
				}
			}}, func(t *testing.T, fd *flightdtest.Flightd) {
				first := doInBackground(t.Context(), fd, callOf("1", `{"a":1}`, c.p), func(context.Context, *effect.Attempt) (effect.Answer, error) {
					return effect.Answer{ExternalID: "ch_0"}, c.fails
				})
				<-at
				reply, err := fd.Ledger.Propose(t.Context(), c.ends(fd.Flight(keyOf("1"))))
				require.NoError(t, err)
				require.EqualValues(t, 2, reply.Flight.Generation)
				next := new(countingHandler)
				second := doInBackground(t.Context(), fd, callOf("1", c.input, c.p), next.handle)
				synctest.Wait()
				close(on)
				require.Equal(t, c.fails == nil, (<-first).err == nil)
				got := <-second
				require.NoError(t, got.err)
				require.Equal(t, effect.SourceExecuted, got.result.Source)
				require.Equal(t, "ch_1", got.result.Answer.ExternalID)
			})
		})
	}
}

// afterWaitLedger calls afterWait when a Wait has returned a final flight.
type afterWaitLedger struct {
	*flightdtest.Ledger
	afterWait func()
}

func (l *afterWaitLedger) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	f, err := l.Ledger.Wait(ctx, id, seen)
	if between := l.afterWait; err == nil && f.State.Terminal() && between != nil {
		l.afterWait = nil
		between()
	}
	return f, err
}

// The same if the joined call has only waited for another holder, and has no result yet.
func TestJoin_JoinerOfEarlierGenerationRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(afterWaitLedger)
		there := flightdtest.Open(t, flightdtest.Options{})
		here := there.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			l.Ledger = cfg.Ledger.(*flightdtest.Ledger)
			cfg.Ledger = l
		}})
		call, g, next := callOf("1", `{"a":1}`, flight.Policy{}), newBlockingHandler(), new(countingHandler)
		flies := doInBackground(t.Context(), there, call, g.handle)
		<-g.started
		joined := make(chan (<-chan doResult), 1)
		l.afterWait = func() {
			f := there.Flight(call.Key)
			_, err := there.Ledger.Propose(t.Context(), &flight.FreeKey{Key: f.Key, Generation: f.Generation, Actor: "test"})
			require.NoError(t, err)
			joined <- doInBackground(t.Context(), here, call, next.handle)
			synctest.Wait()
		}
		waits := doInBackground(t.Context(), here, call, unreachableHandler(t))
		synctest.Wait()
		g.result <- nil
		require.NoError(t, (<-flies).err)
		got := <-<-joined
		require.NoError(t, (<-waits).err)
		require.NoError(t, got.err)
		require.Equal(t, effect.SourceExecuted, got.result.Source)
		require.EqualValues(t, 1, next.n.Load())
	})
}
