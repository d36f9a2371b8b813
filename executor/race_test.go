package executor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// Two nodes race for many keys with many callers each: one effect per key, one receipt for all.
func TestHazard11_TwoNodesRace(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		nodes := [...]effect.Doer{fd, fd.Restart(t, flightdtest.Options{})}
		for key := range 20 {
			c := new(countingHandler)
			call := callOf(string(rune('a'+key)), `{}`, flight.Policy{})
			var calls []<-chan doResult
			for i := range 20 {
				calls = append(calls, doInBackground(t.Context(), nodes[i%2], call, c.handle))
			}
			executed := 0
			for _, done := range calls {
				got := <-done
				require.NoError(t, got.err)
				require.Equal(t, "paid", string(got.result.Answer.Body))
				if got.result.Source == effect.SourceExecuted {
					executed++
				}
			}
			require.Equal(t, 1, executed)
			require.EqualValues(t, 1, c.n.Load())
			require.EqualValues(t, 1, fd.Flight(call.Key).AttemptCount)
		}
	})
}

// freezeMidEffect starts an effect on a node, freezes the node during the effect, and lets three TTLs pass.
func freezeMidEffect(t *testing.T, fd *flightdtest.Flightd, call effect.Call, id string) (g *blockingHandler, done <-chan doResult) {
	g = newBlockingHandler()
	done = doInBackground(t.Context(), fd, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		answer, err := g.handle(ctx, at)
		answer.ExternalID = id
		return answer, err
	})
	<-g.started
	fd.Leases.Freeze()
	return g, done
}

// A frozen holder resumes after another attempt under resend, which its restarted process has opened: under another session, and not
// before its own has ended. Its report is fenced and stored as evidence. A report of another effect than the receipt's is an overlap.
func TestHazard01_05_12_36_AFrozenHolderIsFenced(t *testing.T) {
	for id, overlaps := range map[string]int32{"ch_1": 0, "ch_other": 1} {
		t.Run(id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fenced, overlap atomic.Int32
				a := flightdtest.Open(t, flightdtest.Options{NoSweeper: true, Events: executor.Events{
					Fenced: func(flight.Key, uint32) { fenced.Add(1) }, Overlap: func(flight.Key) { overlap.Add(1) },
				}})
				b := a.Restart(t, flightdtest.Options{})
				call := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend})
				g, done := freezeMidEffect(t, a, call, id)
				began := time.Now()
				result, err := b.Do(t.Context(), call, (&countingHandler{}).handle)
				require.NoError(t, err)
				require.Greater(t, time.Since(began), 10*time.Second)
				require.EqualValues(t, 2, result.Attempt)
				sleep(t, 45*time.Second)
				a.Leases.Thaw()
				g.result <- nil
				got := <-done
				require.NoError(t, got.err, "the flight has ended, and every caller gets its receipt")
				require.Equal(t, "ch_1", got.result.Answer.ExternalID)
				require.Equal(t, effect.SourceReplayed, got.result.Source)
				f := a.Flight(call.Key)
				require.NotEqual(t, f.Attempts[0].Session.ID, f.Attempts[1].Session.ID)
				require.Len(t, f.Evidence, 1)
				require.Equal(t, id, f.Evidence[0].ExternalID)
				require.EqualValues(t, 1, fenced.Load())
				require.Equal(t, overlaps, overlap.Load())
				require.Equal(t, overlaps > 0, f.Overlap)
			})
		})
	}
}

// The frozen holder resumes while the newer attempt still runs.
func TestHazard05_AFrozenHolderAndARunningSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, a *flightdtest.Flightd) {
		b := a.Restart(t, flightdtest.Options{})
		call, g2 := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}), newBlockingHandler()
		g1, first := freezeMidEffect(t, a, call, "ch_1")
		second := doInBackground(t.Context(), b, call, g2.handle)
		<-g2.started
		a.Leases.Thaw()
		g1.result <- nil
		requireAs[*effect.Fenced](t, (<-first).err)
		require.Equal(t, flight.StateRunning, a.Flight(call.Key).State)
		g2.result <- nil
		require.NoError(t, (<-second).err)
		require.Len(t, a.Flight(call.Key).Evidence, 1)
	})
}

// So many attempts have followed that the flight has forgotten the holder's. Its unknown outcome says nothing of the newest attempt.
func TestHazard05_AFrozenHolderAfterManyAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, a *flightdtest.Flightd) {
		b := a.Restart(t, flightdtest.Options{})
		call, g2 := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}), newBlockingHandler()
		g1, first := freezeMidEffect(t, a, call, "ch_1")
		for range flight.MaxAttempts {
			_, err := b.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{}, errors.New("no answer")
			})
			requireAs[*effect.Unsettled](t, err)
		}
		second := doInBackground(t.Context(), b, call, g2.handle)
		<-g2.started
		a.Leases.Thaw()
		g1.result <- errors.New("no answer")
		requireAs[*effect.Fenced](t, (<-first).err)
		g2.result <- nil
		require.NoError(t, (<-second).err)
		require.Empty(t, a.Flight(call.Key).Evidence)
	})
}

// No newer attempt was opened: the late report is accepted in every state.
func TestHazard06_AFrozenHolderSettlesItsOwnDoubt(t *testing.T) {
	for _, recovery := range recoveries {
		t.Run(recovery.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *flightdtest.Flightd) {
				b := a.Restart(t, flightdtest.Options{})
				call := callOf("1", `{}`, flight.Policy{Recovery: recovery})
				call.LookUp = lookUpAt(&provider{Say: t.Logf})
				g, done := freezeMidEffect(t, a, call, "ch_1")
				sleep(t, 45*time.Second) // b's sweeper ends the attempt without a caller
				concluded := map[flight.Recovery]flight.State{flight.RecoveryHold: flight.StateInDoubt, flight.RecoveryResend: flight.StateReady, flight.RecoveryVerify: flight.StateRunning}
				require.Equal(t, concluded[recovery], b.Flight(call.Key).State)
				require.True(t, b.Flight(call.Key).Tainted())
				a.Leases.Thaw()
				g.result <- nil
				got := <-done
				require.NoError(t, got.err)
				require.Equal(t, effect.SourceExecuted, got.result.Source)
				again, err := b.Do(t.Context(), call, unreachableHandler(t))
				require.NoError(t, err)
				require.EqualValues(t, 1, again.Attempt)
				require.Empty(t, b.Flight(call.Key).Evidence)
			})
		})
	}
}
