package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// scriptedLookUp returns a look-up with the given findings in turn; the last one is repeated.
func scriptedLookUp(n *atomic.Int32, says ...flight.Finding) effect.LookUp {
	return func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		verb := says[min(int(n.Add(1)), len(says))-1]
		return verb, effect.Answer{ExternalID: "ch_1", Body: []byte("found")}, nil
	}
}

// After an unknown outcome a look-up finds the effect: after the settle delay its finding becomes the receipt.
func TestALookUpFindsTheEffect(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, looks := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify, AttemptTimeout: 5 * time.Second}), new(atomic.Int32)
		call.LookUp = scriptedLookUp(looks, flight.FindingNone, flight.FindingNone, flight.FindingHappened)
		h, n := failingHandler(errReset)
		began := time.Now()
		result, err := fd.Do(t.Context(), call, h)
		require.NoError(t, err)
		require.Equal(t, "found", string(result.Answer.Body))
		require.EqualValues(t, 1, n.Load())
		require.EqualValues(t, 3, looks.Load())
		require.GreaterOrEqual(t, time.Since(began), 23*time.Second, "the settle delay and two pauses")
		require.Equal(t, flight.SourceLookup, fd.Flight(call.Key).Receipt.Source)
	})
}

// The settle delay is measured by this process's own clock: a ledger time that jumps ahead does not shorten it.
func TestHazard02_TheSettleDelayIsTheObserversOwn(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, looks := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Minute}), new(atomic.Int32)
		call.LookUp = scriptedLookUp(looks, flight.FindingHappened)
		h, _ := failingHandler(errReset)
		began := time.Now()
		done := doInBackground(t.Context(), fd, call, h)
		synctest.Wait()
		require.True(t, fd.Flight(call.Key).Verifying())
		fd.Ledger.Advance(time.Hour)
		sleep(t, 59*time.Second)
		require.Zero(t, looks.Load())
		require.NoError(t, (<-done).err)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), 62*time.Second)
	})
}

// A process that first sees the doubt after the delay by the ledger's clock waits, too: it has not measured the delay
// itself.
func TestHazard02_TheSettleDelayOfAnotherObserver(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, looks := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Minute}), new(atomic.Int32)
		call.LookUp = scriptedLookUp(looks, flight.FindingHappened)
		h, _ := failingHandler(errReset)
		ctx, cancel := context.WithCancel(t.Context())
		done := doInBackground(ctx, fd, call, h)
		synctest.Wait()
		cancel()
		<-done
		fd.Ledger.Advance(time.Hour)
		other := fd.Restart(t, flightdtest.Options{})
		began := time.Now()
		_, err := other.Do(t.Context(), call, unreachableHandler(t))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.EqualValues(t, 1, looks.Load())
	})
}

// A process that first sees the doubt long after the attempt was closed waits exactly one settle delay.
func TestTheSettleDelayIsNoLongerThanDeclared(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend, Lookup: true, ProviderWindow: time.Hour, SettleDelay: time.Minute}
		call, looks := callOf("1", `{}`, p), new(atomic.Int32)
		call.LookUp = scriptedLookUp(looks, flight.FindingHappened)
		h, _ := failingHandler(errReset)
		_, err := fd.Do(t.Context(), call, h)
		requireAs[*effect.Unsettled](t, err)
		sleep(t, time.Hour) // the provider's window is over: the next open starts the verification
		began := time.Now()
		_, err = fd.Do(t.Context(), call, h)
		require.NoError(t, err)
		require.InDelta(t, time.Minute, time.Since(began), float64(2*time.Second))
	})
}

// A restore has lost the only attempt: the look-up knows nothing of it but the key.
func TestHazard22_ALookUpOfALostAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, looks := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Minute}), new(atomic.Int32)
		call.LookUp = scriptedLookUp(looks, flight.FindingNone, flight.FindingHappened)
		lost, err := fd.Remote().Open(t.Context(), remote.OpenRequest{Key: call.Key, Submission: call.Submission, Nonce: flight.Nonce{1}, Owner: "caller"})
		require.NoError(t, err)
		before := flightdtest.New(t)
		_, err = before.Ledger.Propose(t.Context(), &flight.Submit{Key: call.Key, Submission: call.Submission})
		require.NoError(t, err)
		_, err = before.Remote().Report(t.Context(), remote.ReportRequest{ID: lost.Flight.ID, Key: call.Key, FencingToken: lost.FencingToken, Outcome: flight.OutcomeUnknown})
		require.NoError(t, err)
		result, err := before.Do(t.Context(), call, unreachableHandler(t))
		require.NoError(t, err)
		require.Equal(t, "found", string(result.Answer.Body))
	})
}
