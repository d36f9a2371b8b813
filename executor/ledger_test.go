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

// The answer to an Open is lost: the Open is proposed again. There is no doubt and no second attempt.
func TestHazard08_10_TheAnswerToAnOpenIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		for _, recovery := range recoveries {
			call, c := callOf(recovery.String(), `{}`, flight.Policy{Recovery: recovery}), new(countingHandler)
			call.LookUp = lookUpAt(&provider{Say: t.Logf})
			fd.Ledger.LoseAnswers(3)
			result, err := fd.Do(t.Context(), call, c.handle)
			require.NoError(t, err)
			require.EqualValues(t, 1, c.n.Load())
			require.EqualValues(t, 1, result.Attempt)
			require.EqualValues(t, 1, fd.Flight(call.Key).AttemptCount)
		}
	})
}

// An Open hangs. After half a TTL it is abandoned and the caller gets an error. The claim is released only when the
// Open can no longer open an attempt, and a late Open opens nothing.
func TestHazard08_14_AnOpenThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, c := callOf("1", `{}`, flight.Policy{}), new(countingHandler)
		fd.Ledger.Stall()
		began := time.Now()
		_, err := fd.Do(t.Context(), call, c.handle)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		require.LessOrEqual(t, time.Since(began), 8*time.Second)
		fd.Ledger.Heal()
		_, err = fd.Do(t.Context(), call, c.handle)
		require.NoError(t, err)
		f := fd.Flight(call.Key)
		require.EqualValues(t, 1, c.n.Load())
		for _, e := range fd.Ledger.History(call.Key) {
			require.NotEqual(t, flight.EventLost, e.Kind, "an abandoned Open leaves no doubt")
		}
		require.Equal(t, flight.StateSucceeded, f.State)
	})
}

// The last caller leaves while its Open is unanswered: an attempt that was opened is executed or abandoned, but never
// left open.
func TestACallerGoesWhileItsOpenIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, c := callOf("1", `{}`, flight.Policy{}), new(countingHandler)
		ctx, cancel := context.WithCancel(t.Context())
		fd.Ledger.Stall()
		done := doInBackground(ctx, fd, call, c.handle)
		synctest.Wait()
		cancel()
		<-done
		sleep(t, time.Second)
		fd.Ledger.Heal()
		sleep(t, time.Minute)
		f := fd.Flight(call.Key)
		require.Nil(t, f.OpenAttempt())
		require.False(t, f.Tainted())
	})
}

// The ledger is down when the effect has happened: the caller gets *effect.Unrecorded, the claim is kept until the
// report is recorded, and the attempt is never lost.
func TestHazard09_14_TheLedgerIsAwayAfterTheEffect(t *testing.T) {
	for name, away := range map[string]func(*flightdtest.Ledger){"cut": (*flightdtest.Ledger).Cut, "stalled": (*flightdtest.Ledger).Stall} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				call, g := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}), newBlockingHandler()
				other := fd.Restart(t, flightdtest.Options{})
				done := doInBackground(t.Context(), fd, call, g.handle)
				<-g.started
				away(fd.Ledger)
				g.result <- nil
				unrecorded := requireAs[*effect.Unrecorded](t, (<-done).err)
				require.ErrorIs(t, unrecorded, effect.ErrPending)
				require.ErrorContains(t, unrecorded, "ended as succeeded, which is not recorded yet; its report waits on this node's disk")
				require.Equal(t, "ch_1", unrecorded.Result.Answer.ExternalID)
				sleep(t, time.Minute)
				late := doInBackground(t.Context(), other, call, unreachableHandler(t))
				sleep(t, time.Minute)
				fd.Ledger.Heal()
				got := <-late
				require.NoError(t, got.err)
				require.Equal(t, "paid", string(got.result.Answer.Body))
				for _, e := range fd.Ledger.History(call.Key) {
					require.NotEqual(t, flight.EventLost, e.Kind)
				}
				sleep(t, 5*time.Second)
				claims, err := fd.Leases.Claims(t.Context())
				require.NoError(t, err)
				require.Empty(t, claims, "the claim is released after the report is recorded")
			})
		})
	}
}

// failingReports is a ledger with a broken spool: the next *fail reports return an error.
type failingReports struct {
	*flightdtest.Ledger
	fail *int
}

func (fr failingReports) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	if *fr.fail > 0 {
		*fr.fail--
		return flight.Reply{}, effect.ErrAmbiguous
	}
	return fr.Ledger.Report(ctx, r)
}

func TestHazard09_UnspooledReportIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := 3
		fd := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			cfg.Ledger = failingReports{cfg.Ledger.(*flightdtest.Ledger), &fail}
		}})
		call, c := callOf("1", `{}`, flight.Policy{}), new(countingHandler)
		_, err := fd.Do(t.Context(), call, c.handle)
		require.ErrorContains(t, requireAs[*effect.Unrecorded](t, err), "on no disk")
		result, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.NoError(t, err)
		require.Equal(t, "ch_1", result.Answer.ExternalID)
		require.EqualValues(t, 1, c.n.Load())
	})
}

func TestWithoutALedgerNothingStarts(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		kept := callOf("kept", `{}`, flight.Policy{})
		_, err := fd.Do(t.Context(), kept, (&countingHandler{}).handle)
		require.NoError(t, err)
		fd.Ledger.Cut()
		_, err = fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), unreachableHandler(t))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		_, err = fd.Do(t.Context(), kept, unreachableHandler(t))
		require.NoError(t, err)
		waitForReleases(t)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Empty(t, claims)
	})
}

// wrongEpochReader returns a header with another store epoch than the ledger's.
type wrongEpochReader struct{ *flightdtest.Ledger }

func (r wrongEpochReader) Header() flight.Header {
	h := r.Ledger.Header()
	h.StoreEpoch++
	return h
}

// The ledger rejects every open of another epoch. The caller gets an error after a few tries, with few requests to
// etcd.
func TestHazard22_ClaimsOfAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{Configure: func(cfg *executor.Config) {
			cfg.Reader = wrongEpochReader{cfg.Ledger.(*flightdtest.Ledger)}
		}})
		before := fd.Leases.Etcd.Revision()
		_, err := fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), unreachableHandler(t))
		require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
		require.Less(t, fd.Leases.Etcd.Revision()-before, int64(20))
		require.Nil(t, fd.Flight(keyOf("1")))
	})
}
