package executor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease"
)

// The sweeper ends the attempts of dead holders without callers, with and without the watch, and more than one
// EndSession command can end at once.
func TestTheSweeperNoticesDeadHolders(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			var recovered atomic.Int32
			bubbleWith(t, flightdtest.Options{Events: executor.Events{Recovered: func(flight.Key, uint32, flight.State) { recovered.Add(1) }}},
				func(t *testing.T, fd *flightdtest.Flightd) {
					if deaf {
						fd.Leases.LoseHints()
					}
					session, err := fd.Leases.NewSession(t.Context(), lease.Spec{})
					require.NoError(t, err)
					const flights = flight.MaxEndSessionFlights + 44
					for i := range flights {
						reply, err := fd.Ledger.Propose(t.Context(), &flight.Open{Key: keyOf(fmt.Sprint(i)), Nonce: flight.Nonce{1}, Session: session.Ref(),
							NotAfter: fd.Ledger.Now().Add(time.Second), StoreEpoch: fd.Ledger.Header().StoreEpoch})
						require.NoError(t, err)
						require.Equal(t, flight.DecisionProceed, reply.Decision)
					}
					synctest.Wait()
					sleep(t, lease.DefaultTTL+2500*time.Millisecond)
					require.EqualValues(t, flights, recovered.Load())
					for i := range flights {
						require.Equal(t, flight.StateInDoubt, fd.Flight(keyOf(fmt.Sprint(i))).State)
					}
				})
		})
	}
}

// The sweeper does not end attempts of living sessions, or of effects that run in this process without trust.
func TestTheSweeperLeavesTheLivingAlone(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		ctx, cancel := context.WithCancel(t.Context())
		done := doInBackground(ctx, fd, call, g.handle)
		<-g.started
		cancel() // the caller leaves, the effect continues
		<-done
		later := doInBackground(t.Context(), fd, call, unreachableHandler(t))
		sleep(t, time.Minute)
		fd.Leases.Freeze()
		sleep(t, time.Minute)
		fd.Leases.Thaw()
		sleep(t, time.Minute)
		require.Equal(t, flight.StateRunning, fd.Flight(call.Key).State)
		g.result <- nil
		require.NoError(t, (<-later).err)
		require.EqualValues(t, 1, fd.Flight(call.Key).AttemptCount)
		for _, e := range fd.Ledger.History(call.Key) {
			require.NotEqual(t, flight.EventLost, e.Kind)
		}
	})
}

// Only the end of a session, or a time-out, ends an attempt. Another caller does not end it, and neither does a missing
// claim.
func TestAMissingClaimEndsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		first := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.NoError(t, fd.Leases.RemoveClaims(t.Context(), claims))
		other := fd.Restart(t, flightdtest.Options{})
		second := doInBackground(t.Context(), other, call, unreachableHandler(t))
		sleep(t, 10*time.Minute)
		g.result <- nil
		require.NoError(t, (<-first).err)
		got := <-second
		require.NoError(t, got.err)
		require.Equal(t, effect.SourceJoined, got.result.Source)
	})
}

// A worker hangs while its session is renewed: its key is free after the attempt's time-out, and its late report
// counts.
func TestHazard16_AWorkerHangsWhileItsSessionIsRenewed(t *testing.T) {
	for _, waits := range []bool{false, true} {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			p := flight.Policy{AttemptTimeout: 30 * time.Second}
			a := openForeignAttempt(t, fd, callOf("1", `{}`, p)) // its session lives for ten minutes
			var second <-chan doResult
			if waits {
				second = doInBackground(t.Context(), fd, callOf("1", `{}`, p), unreachableHandler(t))
			}
			sleep(t, 47*time.Second)
			require.Equal(t, flight.StateRunning, fd.Flight(a.open.Key).State)
			sleep(t, 4*time.Second)
			require.Equal(t, flight.StateInDoubt, fd.Flight(a.open.Key).State)
			if waits {
				requireAs[*effect.InDoubt](t, (<-second).err)
			}
			require.Equal(t, flight.StateSucceeded, a.report(flight.OutcomeSucceeded, "ch_1").Flight.State, "the late report ends the doubt")
		})
	}
}

// Each leader change in etcd restarts the TTL of a dead holder's lease: its flight waits until a person ends the
// session.
func TestHazard17_ADeadHoldersSessionThatStays(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := openForeignAttempt(t, fd, callOf("1", `{}`, flight.Policy{}))
		for range 20 {
			sleep(t, 10*time.Second)
			_, err := a.session.Renew(t.Context()) // as a new leader of etcd does for every lease
			require.NoError(t, err)
			require.Equal(t, flight.StateRunning, fd.Flight(a.open.Key).State)
		}
		require.NoError(t, fd.Leases.EndSession(t.Context(), a.open.Session.ID))
		sleep(t, 3*time.Second)
		require.Equal(t, flight.StateInDoubt, fd.Flight(a.open.Key).State)
	})
}

func TestSweep_FailureIsPublished(t *testing.T) {
	var failed atomic.Int32
	bubbleWith(t, flightdtest.Options{Events: executor.Events{SweepFailed: func(error) { failed.Add(1) }}}, func(t *testing.T, fd *flightdtest.Flightd) {
		a := openForeignAttempt(t, fd, callOf("1", `{}`, flight.Policy{}))
		fd.Leases.Etcd.Expire(a.open.Session.ID)
		fd.Ledger.Cut()
		sleep(t, time.Minute)
		require.Positive(t, failed.Load())
		fd.Ledger.Heal()
		sleep(t, 3*time.Second)
		require.Equal(t, flight.StateInDoubt, fd.Flight(a.open.Key).State)
	})
}

// An opener that is blocked by a session checks it, at most once a second, even if the leader's sweeper does not run.
func TestCheck_OpenerChecksTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := flightdtest.Open(t, flightdtest.Options{NoSweeper: true})
		call := callOf("1", `{}`, flight.Policy{})
		a := openForeignAttempt(t, leader, call)
		sweeper := executor.NewSweeper(executor.SweeperConfig{Ledger: leader.Ledger, Reader: leader.Ledger, Sessions: leader.Ledger, Leases: leader.Leases})
		looked := &countingChecker{Sweeper: sweeper}
		fd := leader.Restart(t, flightdtest.Options{NoSweeper: true, Configure: func(cfg *executor.Config) { cfg.Checker = looked }})
		waiting := doInBackground(t.Context(), fd, call, unreachableHandler(t))
		sleep(t, 20*time.Second)
		require.Equal(t, flight.StateRunning, fd.Flight(call.Key).State)
		leader.Leases.Etcd.Expire(a.open.Session.ID)
		requireAs[*effect.InDoubt](t, (<-waiting).err)
		require.Positive(t, looked.n.Load())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		sweeper.Run(ctx) // waits for the checks
	})
}

type countingChecker struct {
	*executor.Sweeper
	n atomic.Int32
}

func (c *countingChecker) Check(session flight.Session) {
	c.n.Add(1)
	c.Sweeper.Check(session)
}

// An orphan claim is deleted after two searches; a claim in use is not.
func TestOrphanClaimsAreDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		session, err := fd.Leases.NewSession(t.Context(), lease.Spec{TTL: lease.MaxTTL})
		require.NoError(t, err)
		orphan, err := session.Reserve(t.Context(), keyOf("orphan"), flight.Nonce{7})
		require.NoError(t, err)
		require.NoError(t, orphan.Claim(t.Context()))
		g := newBlockingHandler()
		running := doInBackground(t.Context(), fd, callOf("used", `{}`, flight.Policy{}), g.handle)
		<-g.started
		sleep(t, 70*time.Second)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 2)
		sleep(t, time.Minute)
		claims, err = fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 1)
		require.Equal(t, keyOf("used"), claims[0].Key)
		g.result <- nil
		require.NoError(t, (<-running).err)
		orphan.Release()
	})
}

// The counter of the guard key is raised every ten seconds, in etcd and then in the ledger.
func TestTheGuardCounterIsRaised(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		sleep(t, time.Second)
		first := fd.Ledger.Header().GuardCounter
		require.Positive(t, first)
		sleep(t, 20*time.Second)
		require.Equal(t, first+2, fd.Ledger.Header().GuardCounter)
	})
}
