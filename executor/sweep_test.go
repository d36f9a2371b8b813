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

// proceed opens a flight for a remote caller and requires that it may act.
func proceed(t *testing.T, fd *flightdtest.Flightd, req executor.OpenRequest) executor.OpenAnswer {
	t.Helper()
	answer, err := fd.Desk().Open(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, flight.Proceed, answer.Decision)
	require.Positive(t, answer.Trust)
	return answer
}

// Dead holders are noticed though nobody asks, many at once, with hints and without.
func TestTheSweeperNoticesDeadHolders(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			var recovered atomic.Int32
			bubbleWith(t, flightdtest.Options{Events: executor.Events{Recovered: func(flight.Key, uint32, flight.Decision) { recovered.Add(1) }}},
				func(t *testing.T, fd *flightdtest.Flightd) {
					if deaf {
						fd.Leases.LoseHints()
					}
					const flights = 300
					for i := range flights {
						proceed(t, fd, executor.OpenRequest{Key: keyOf(fmt.Sprint(i)), Nonce: flight.Nonce{1}})
					}
					synctest.Wait()
					asleep(t, lease.DefaultTTL+2500*time.Millisecond)
					require.EqualValues(t, flights, recovered.Load())
					for i := range flights {
						require.Equal(t, flight.InDoubt, fd.Flight(keyOf(fmt.Sprint(i))).State)
					}
					released(t)
					claims, err := fd.Leases.Claims(t.Context())
					require.NoError(t, err)
					require.Empty(t, claims)
				})
		})
	}
}

// The sweeper leaves alone what is held, and what this process itself has in the air without a lease.
func TestTheSweeperLeavesTheLivingAlone(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newGate()
		ctx, cancel := context.WithCancel(t.Context())
		done := do(ctx, fd, call, g.handle)
		<-g.in
		cancel() // nobody waits any more, the effect goes on
		<-done
		later := do(t.Context(), fd, call, never(t))
		asleep(t, time.Minute)
		fd.Leases.Freeze()
		asleep(t, time.Minute)
		fd.Leases.Thaw()
		asleep(t, time.Minute)
		require.Equal(t, flight.Running, fd.Flight(call.Key).State)
		g.out <- nil
		require.NoError(t, (<-later).err)
		require.EqualValues(t, 1, fd.Flight(call.Key).AttemptCount)
		for _, e := range fd.Ledger.History(call.Key) {
			require.NotEqual(t, flight.EventLost, e.Kind)
		}
	})
}

// A remote caller that hangs keeps its session healthy; its claim is taken when the attempt's time is long over.
func TestHazard16_ARemoteCallerThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		g := &guest{w: &world{t: t, script: new(script)}, name: "caller"}
		g.at.Store(&node{Flightd: fd})
		ctx, cancel := context.WithCancel(t.Context())
		g.req = executor.OpenRequest{Key: keyOf("1"), Nonce: flight.Nonce{1}, Submission: flight.Submission{Policy: flight.Policy{AttemptTimeout: 30 * time.Second}}}
		g.stay(ctx)
		answer := proceed(t, fd, g.req)
		asleep(t, 44*time.Second)
		require.Equal(t, flight.Running, fd.Flight(g.req.Key).State)
		asleep(t, 10*time.Second)
		require.Equal(t, flight.InDoubt, fd.Flight(g.req.Key).State)
		f, err := fd.Desk().Report(t.Context(), executor.ReportRequest{ID: answer.Flight.ID, FencingToken: answer.FencingToken, Outcome: flight.Succeeded})
		require.NoError(t, err, "it may still settle its own doubt")
		require.Equal(t, flight.StateSucceeded, f.State)
		cancel()
		<-g.renewed
	})
}

// So it is where somebody in this very process waits for it.
func TestHazard16_ARemoteCallerThatHangsWhileOthersWaitHere(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{AttemptTimeout: 30 * time.Second}, 1)
		req.Session = sessionOf(t, fd, lease.MaxTTL) // healthy for as long as this takes
		proceed(t, fd, req)
		waits := do(t.Context(), fd, callOf("1", `{}`, req.Submission.Policy), never(t))
		asleep(t, 44*time.Second)
		require.Equal(t, flight.Running, fd.Flight(req.Key).State)
		asleep(t, 10*time.Second)
		require.Equal(t, flight.InDoubt, fd.Flight(req.Key).State)
		requireAs[*effect.InDoubt](t, (<-waits).err)
	})
}

// Leader changes in etcd start a dead holder's time anew, again and again: its flight waits, and goes on as soon as the
// claim is gone; an operator may take the claim.
func TestHazard17_ADeadHoldersClaimThatStays(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		var answers []executor.OpenAnswer
		for _, id := range []string{"1", "2"} {
			answers = append(answers, proceed(t, fd, executor.OpenRequest{Key: keyOf(id), Nonce: flight.Nonce{1}}))
		}
		for range 20 {
			asleep(t, 10*time.Second)
			for _, a := range answers { // what a new leader of etcd does to every lease
				s, err := fd.Leases.Session(t.Context(), a.Session)
				require.NoError(t, err)
				_, err = s.Renew(t.Context())
				require.NoError(t, err)
				require.Equal(t, flight.Running, fd.Flight(a.Flight.Key).State)
			}
		}
		stolen := answers[0].Flight
		require.NoError(t, fd.Leases.Remove(t.Context(), stolen.Key, stolen.Newest().Claim))
		asleep(t, 3*time.Second)
		require.Equal(t, flight.InDoubt, fd.Flight(keyOf("1")).State)
		require.Equal(t, flight.Running, fd.Flight(keyOf("2")).State)
		asleep(t, lease.DefaultTTL+time.Second)
		require.Equal(t, flight.InDoubt, fd.Flight(keyOf("2")).State)
	})
}

func TestASweepThatFailsIsTold(t *testing.T) {
	var failed atomic.Int32
	bubbleWith(t, flightdtest.Options{Events: executor.Events{SweepFailed: func(error) { failed.Add(1) }}}, func(t *testing.T, fd *flightdtest.Flightd) {
		proceed(t, fd, executor.OpenRequest{Key: keyOf("1"), Nonce: flight.Nonce{1}})
		fd.Ledger.Cut()
		asleep(t, time.Minute)
		require.Positive(t, failed.Load())
		fd.Ledger.Heal()
		asleep(t, 3*time.Second)
		require.Equal(t, flight.InDoubt, fd.Flight(keyOf("1")).State)
	})
}
