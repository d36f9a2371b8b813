package flightdtest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

func TestOneEffectForManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		call := effect.Call{Key: flight.MustKey("billing/charge/order-42")}
		var effects atomic.Int32
		release := make(chan struct{})
		charge := func(context.Context, *effect.Attempt) (effect.Answer, error) {
			effects.Add(1)
			<-release
			return effect.Answer{ExternalID: "ch_1", Body: []byte(`{"id":"ch_1"}`)}, nil
		}
		var wg sync.WaitGroup
		var sources [3]atomic.Int32
		for range 100 {
			wg.Go(func() {
				result, err := fd.Do(t.Context(), call, charge)
				require.NoError(t, err)
				require.Equal(t, "ch_1", result.Answer.ExternalID)
				sources[result.Source].Add(1)
			})
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		result, err := fd.Do(t.Context(), call, charge)
		require.NoError(t, err)
		require.Equal(t, effect.SourceReplayed, result.Source)
		require.Equal(t, `{"id":"ch_1"}`, string(result.Answer.Body))
		require.EqualValues(t, 1, effects.Load())
		require.EqualValues(t, 1, sources[effect.SourceExecuted].Load())
		require.EqualValues(t, 99, sources[effect.SourceJoined].Load())
	})
}
