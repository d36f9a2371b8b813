package executor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// recordEvents returns Events that record every event.
func recordEvents(s *transcript) executor.Events {
	return executor.Events{
		Called:  func(k flight.Key, result string, _ time.Duration) { s.Add("called %s: %s", k, result) },
		Claimed: func(k flight.Key, waited time.Duration) { s.Add("claimed %s after %v", k, waited) },
		Opened:  func(k flight.Key, n uint32) { s.Add("opened %s %d", k, n) },
		Closed: func(k flight.Key, n uint32, o flight.Outcome, d time.Duration) {
			s.Add("closed %s %d: %v after %v", k, n, o, d)
		},
		Lost:      func(k flight.Key, n uint32) { s.Add("lost %s %d", k, n) },
		Abandoned: func(k flight.Key, n uint32) { s.Add("abandoned %s %d", k, n) },
		InDoubt:   func(k flight.Key, n uint32, cause string) { s.Add("doubted %s %d: %s", k, n, cause) },
		Fenced:    func(k flight.Key, n uint32) { s.Add("fenced %s %d", k, n) },
		Overlap:   func(k flight.Key) { s.Add("overlap %s", k) },
		Recovered: func(k flight.Key, n uint32, now flight.State) { s.Add("recovered %s %d: %v", k, n, now) },
	}
}

// TestEventsOfACall checks the events of one call and of its duplicate, in order.
func TestEventsOfACall(t *testing.T) {
	s := new(transcript)
	bubbleWith(t, flightdtest.Options{Events: recordEvents(s)}, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{})
		act := func(context.Context, *effect.Attempt) (effect.Answer, error) {
			sleep(t, 3*time.Second)
			return effect.Answer{}, nil
		}
		for range 2 {
			_, err := fd.Do(t.Context(), call, act)
			require.NoError(t, err)
		}
		other := callOf("1", `{"other":1}`, flight.Policy{})
		_, err := fd.Do(t.Context(), other, act)
		require.Error(t, err)
		doubtful := callOf("2", `{}`, flight.Policy{})
		_, err = fd.Do(t.Context(), doubtful, func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, errReset })
		require.Error(t, err)
		k, k2 := call.Key, doubtful.Key
		require.Equal(t, fmt.Sprintf(`opened %[1]s 1
claimed %[1]s after 0s
closed %[1]s 1: succeeded after 3s
called %[1]s: executed
called %[1]s: replayed
called %[1]s: conflict
opened %[2]s 1
claimed %[2]s after 0s
doubted %[2]s 1: the effect may or may not have happened, and its recovery is hold
closed %[2]s 1: unknown after 0s
called %[2]s: in_doubt
`, k, k2), s.String())
	})
}

// TestTraceReachesTheHandler checks that the handler's context has the caller's trace, although it is the attempt's
// context.
func TestTraceReachesTheHandler(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, err := fd.Do(effect.WithTraceparent(t.Context(), parent), callOf("1", `{}`, flight.Policy{}),
			func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
				require.Equal(t, parent, effect.Traceparent(ctx))
				require.Equal(t, parent, at.Traceparent())
				return effect.Answer{}, nil
			})
		require.NoError(t, err)
		_, err = fd.Do(t.Context(), callOf("2", `{}`, flight.Policy{}), func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.Empty(t, effect.Traceparent(ctx)+at.Traceparent())
			return effect.Answer{}, nil
		})
		require.NoError(t, err)
	})
}

// A repeated report publishes no event, also if the report was fenced.
func TestReportEvents_ArePublishedOnce(t *testing.T) {
	var closed, fenced, overlaps atomic.Int32
	events := executor.Events{
		Closed:  func(flight.Key, uint32, flight.Outcome, time.Duration) { closed.Add(1) },
		Fenced:  func(flight.Key, uint32) { fenced.Add(1) },
		Overlap: func(flight.Key) { overlaps.Add(1) },
	}
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := openForeignAttempt(t, fd, callOf("1", `{}`, flight.Policy{}))
		for _, id := range []string{"ch_1", "ch_1", "ch_2", "ch_2"} {
			reply := a.report(flight.OutcomeSucceeded, id) // the later two are fenced
			events.PublishReport(&reply, a.reply.Token.Number, flight.OutcomeSucceeded)
		}
		require.EqualValues(t, 1, closed.Load())
		require.EqualValues(t, 1, fenced.Load())
		require.EqualValues(t, 1, overlaps.Load())
	})
}

// The attempt of a holder that no longer renews its session is published as lost.
func TestLostEvent_SilentHolder(t *testing.T) {
	s := new(transcript)
	events := recordEvents(s)
	events.Claimed, events.Called = nil, nil
	bubbleWith(t, flightdtest.Options{Events: events}, func(t *testing.T, fd *flightdtest.Flightd) {
		a := openForeignAttempt(t, fd, callOf("1", `{}`, flight.Policy{}))
		fd.Leases.Etcd.Expire(a.session.Ref().ID)
		sleep(t, 5*time.Second)
		k := a.open.Key
		require.Equal(t, fmt.Sprintf("lost %[1]s 1\ndoubted %[1]s 1: the effect may or may not have happened, and its recovery is hold\nrecovered %[1]s 1: in_doubt\n", k), s.String())
	})
}
