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
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// closeInBackground runs Close with a time-out on a goroutine.
func closeInBackground(fd *flightdtest.Flightd, timeout time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		done <- fd.Close(ctx)
	}()
	return done
}

// The order of a graceful stop: running effects finish, report and release their claims, and only then the session
// ends.
func TestHazard35_CloseInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(transcript)
		leases := leasetest.New(t, leasetest.Options{Events: recordLeaseEvents(s)})
		fd := flightdtest.Open(t, flightdtest.Options{Leases: leases, NoSweeper: true, Events: executor.Events{
			Closed: func(_ flight.Key, _ uint32, o flight.Outcome, _ time.Duration) { s.Add("report %v", o) },
		}})
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		running := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		held := callOf("held", `{}`, flight.Policy{})
		openForeignAttempt(t, fd, held)
		waiting := doInBackground(t.Context(), fd, held, unreachableHandler(t))
		synctest.Wait()

		closed := closeInBackground(fd, time.Hour)
		require.ErrorIs(t, (<-waiting).err, effect.ErrClosed)
		_, err := fd.Do(t.Context(), callOf("new", `{}`, flight.Policy{}), unreachableHandler(t))
		require.ErrorIs(t, err, effect.ErrClosed)
		sleep(t, 10*time.Minute)
		s.Add("handler returns")
		g.result <- nil
		require.NoError(t, (<-running).err)
		require.NoError(t, <-closed)
		require.Contains(t, []string{
			"handler returns\nreport succeeded\nsession over\n", // the claim ended with the session
			"handler returns\nreport succeeded\nreleased\nsession over\n",
			"handler returns\nreport succeeded\nsession over\nreleased\n", // the session is over in this process; etcd learns it later
		}, s.String())
		again, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.NoError(t, err, "receipts are replayed until the end")
		require.Equal(t, effect.SourceReplayed, again.Source)
		require.NoError(t, <-closeInBackground(fd, time.Second), "closing twice")
	})
}

// recordLeaseEvents records released claims and the end of this process's session.
func recordLeaseEvents(s *transcript) lease.Events {
	var kept flight.SessionID
	return lease.Events{
		SessionStarted: func(id flight.SessionID, _ time.Duration) {
			if kept == "" {
				kept = id
			}
		},
		SessionEnded: func(id flight.SessionID, _ error, _ int) {
			if id == kept {
				s.Add("session over")
			}
		},
		Released: func(flight.Key, flight.SessionID) { s.Add("released") },
	}
}

// When Close times out, it cancels the contexts of effects; their reports still count.
func TestClose_TimeoutCancelsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, in := callOf("1", `{}`, flight.Policy{}), make(chan struct{})
		done := doInBackground(t.Context(), fd, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.NoError(t, at.Sending())
			close(in)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), effect.ErrClosed)
			return effect.Answer{}, context.Cause(ctx)
		})
		<-in
		began := time.Now()
		require.NoError(t, <-closeInBackground(fd, 3*time.Second))
		require.Equal(t, 3*time.Second, time.Since(began))
		requireAs[*effect.InDoubt](t, (<-done).err)
		require.Equal(t, flight.StateInDoubt, fd.Flight(call.Key).State)
	})
}

// A handler does not return at all: Close returns an error and keeps the claim, so that no successor acts at the same
// time.
func TestHazard35_CloseWithAHandlerThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend}), newBlockingHandler()
		done := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		began := time.Now()
		require.ErrorContains(t, <-closeInBackground(fd, 3*time.Second), "did not return")
		require.Equal(t, 18*time.Second, time.Since(began))
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 1)
		g.result <- nil
		require.NoError(t, (<-done).err, "the late report still counts")
	})
}

// Close begins between Open and send: the attempt is abandoned, and the key is free at once.
func TestCloseBetweenOpenAndSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fd *flightdtest.Flightd
		var closed <-chan error
		fd = flightdtest.Open(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) {
			cfg.Crash = func(point string) {
				if point == "after-open" {
					closed = closeInBackground(fd, time.Minute)
					sleep(t, time.Second)
				}
			}
		}})
		call := callOf("1", `{}`, flight.Policy{})
		_, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.ErrorIs(t, err, effect.ErrClosed)
		require.NoError(t, <-closed)
		f := fd.Flight(call.Key)
		require.Equal(t, flight.StateReady, f.State)
		require.False(t, f.Tainted())
		other := fd.Restart(t, flightdtest.Options{})
		began := time.Now()
		_, err = other.Do(t.Context(), call, (&countingHandler{}).handle)
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
	})
}

// The ledger is down during Close: the report stays in the spool, and Close does not wait for it.
func TestCloseWithTheLedgerAway(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		done := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		fd.Ledger.Cut()
		g.result <- nil
		requireAs[*effect.Unrecorded](t, (<-done).err)
		require.NoError(t, <-closeInBackground(fd, time.Minute))
		fd.Ledger.Heal()
		require.Equal(t, flight.StateSucceeded, fd.Flight(call.Key).State)
	})
}

// etcd is down during Close: Close returns after a time-out.
func TestCloseWithEtcdAway(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		_, err := fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), (&countingHandler{}).handle)
		require.NoError(t, err)
		synctest.Wait()
		fd.Leases.Partition(leasetest.CutRequests)
		began := time.Now()
		require.Error(t, <-closeInBackground(fd, time.Minute))
		require.Less(t, time.Since(began), 15*time.Second)
	})
}
