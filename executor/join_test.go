package executor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

func TestCallersOfOneKeyShareOneEffect(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{"amount":42}`, flight.Policy{}), newBlockingHandler()
		var calls []<-chan doResult
		for range 100 {
			calls = append(calls, doInBackground(t.Context(), fd, call, g.handle))
		}
		<-g.started
		synctest.Wait()
		g.result <- nil
		sources := map[effect.Source]int{}
		for _, c := range calls {
			got := <-c
			require.NoError(t, got.err)
			require.Equal(t, "paid", string(got.result.Answer.Body))
			sources[got.result.Source]++
			clear(got.result.Answer.Body) // each caller has its own copy
		}
		require.Equal(t, map[effect.Source]int{effect.SourceExecuted: 1, effect.SourceJoined: 99}, sources)
		again, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.NoError(t, err)
		require.Equal(t, effect.SourceReplayed, again.Source)
		require.Equal(t, "paid", string(again.Answer.Body))
	})
}

func TestRefusalsAreSharedAndReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		first := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		second := doInBackground(t.Context(), fd, call, g.handle)
		synctest.Wait()
		g.result <- effect.Refused(errors.New("card declined"))
		for source, c := range map[effect.Source]<-chan doResult{effect.SourceExecuted: first, effect.SourceJoined: second} {
			got := <-c
			declined := requireAs[*effect.Declined](t, got.err)
			require.Equal(t, source, declined.Result.Source)
			require.Equal(t, source, got.result.Source)
			require.Equal(t, flight.OutcomeRefused, got.result.Outcome)
		}
		_, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.Equal(t, effect.SourceReplayed, requireAs[*effect.Declined](t, err).Result.Source)
	})
}

// Another input under the same key is rejected at once, in every state of the first call.
func TestHazard30_AnotherInput(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, other, g := callOf("1", `{"amount":42}`, flight.Policy{}), callOf("1", `{"amount":43}`, flight.Policy{}), newBlockingHandler()
		conflict := func(d effect.Doer) {
			t.Helper()
			began := time.Now()
			_, err := d.Do(t.Context(), other, unreachableHandler(t))
			require.Equal(t, []string{"/amount"}, requireAs[*effect.Conflict](t, err).Fields)
			require.Zero(t, time.Since(began))
		}
		first := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		conflict(fd)                                   // joined nowhere
		conflict(fd.Restart(t, flightdtest.Options{})) // another process
		g.result <- nil
		require.NoError(t, (<-first).err)
		conflict(fd)
		fd.Ledger.Advance(flight.DefaultRetention + time.Hour)
		f := fd.Flight(call.Key)
		_, err := fd.Ledger.Propose(t.Context(), &flight.Expire{Key: call.Key, Generation: f.Generation})
		require.NoError(t, err)
		_, err = fd.Do(t.Context(), other, unreachableHandler(t))
		require.Equal(t, call.Key, requireAs[*effect.Conflict](t, err).Key)
		_, err = fd.Do(t.Context(), call, unreachableHandler(t))
		expired := requireAs[*effect.Expired](t, err)
		require.Equal(t, call.Key, expired.Key, "a tombstone has no key; the key is the caller's")
		require.Equal(t, flight.StateSucceeded, expired.Outcome)
	})
}

// Two callers in two processes start at once with different inputs: one acts, the other gets *effect.Conflict.
func TestHazard30_AnotherInputAtTheSameTime(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		other := fd.Restart(t, flightdtest.Options{})
		g := newBlockingHandler()
		a := doInBackground(t.Context(), fd, callOf("1", `{"a":1}`, flight.Policy{}), g.handle)
		b := doInBackground(t.Context(), other, callOf("1", `{"a":2}`, flight.Policy{}), g.handle)
		<-g.started
		synctest.Wait()
		var lost doResult
		select {
		case lost = <-a:
			a = b
		case lost = <-b:
		}
		requireAs[*effect.Conflict](t, lost.err)
		g.result <- nil
		require.NoError(t, (<-a).err)
	})
}

func TestACallerThatGoesEndsOnlyItsWait(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newBlockingHandler()
		ctx, cancel := context.WithCancelCause(t.Context())
		first := doInBackground(ctx, fd, call, func(attempt context.Context, at *effect.Attempt) (effect.Answer, error) {
			answer, err := g.handle(attempt, at)
			require.NoError(t, attempt.Err(), "the attempt's context is not the caller's")
			return answer, err
		})
		<-g.started
		bored := errors.New("bored")
		cancel(bored)
		require.ErrorIs(t, (<-first).err, bored)
		second := doInBackground(t.Context(), fd, call, unreachableHandler(t))
		synctest.Wait()
		g.result <- nil
		got := <-second
		require.NoError(t, got.err)
		require.Equal(t, effect.SourceJoined, got.result.Source)
	})
}

// The last caller leaves while its call waits for another holder: the call ends and opens no attempt.
func TestJoin_WaitingCallEndsWithItsLastCaller(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{})
		foreign := openForeignAttempt(t, fd, call)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := doInBackground(ctx, fd, call, unreachableHandler(t)), doInBackground(ctx, fd, call, unreachableHandler(t))
		sleep(t, time.Minute)
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		require.ErrorIs(t, (<-second).err, context.Canceled)
		synctest.Wait()
		foreign.abandon()
		sleep(t, time.Minute)
		require.Nil(t, fd.Flight(call.Key).OpenAttempt(), "the call has ended")
		var c countingHandler
		_, err := fd.Do(t.Context(), call, c.handle)
		require.NoError(t, err)
	})
}

// A caller that joins just when the last one leaves must not get the other caller's cancellation.
func TestJoin_AsTheLastCallerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, c := callOf("1", `{}`, flight.Policy{}), new(countingHandler)
		for range 100 { // two nonces each; a key remembers 256
			waitForReleases(t)
			foreign := openForeignAttempt(t, fd, call)
			ctx, cancel := context.WithCancel(t.Context())
			first := doInBackground(ctx, fd, call, c.handle)
			synctest.Wait()
			var group sync.WaitGroup
			group.Go(cancel)
			second := doInBackground(t.Context(), fd, call, c.handle)
			group.Wait()
			<-first
			foreign.abandon()
			require.NoError(t, (<-second).err)
			_, err := fd.Ledger.Propose(t.Context(), &flight.FreeKey{Key: call.Key, Generation: fd.Flight(call.Key).Generation})
			require.NoError(t, err)
		}
	})
}

func TestWaitBoundsTheWaitForOthersOnly(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{})
		call.Wait = 3 * time.Second
		foreign := openForeignAttempt(t, fd, call)
		began := time.Now()
		_, err := fd.Do(t.Context(), call, unreachableHandler(t))
		require.Positive(t, requireAs[*effect.Busy](t, err).RetryAfter)
		require.Equal(t, call.Wait, time.Since(began))
		foreign.abandon()
		synctest.Wait()

		g := newBlockingHandler()
		own := doInBackground(t.Context(), fd, call, g.handle)
		<-g.started
		_, err = fd.Do(t.Context(), call, unreachableHandler(t))
		requireAs[*effect.Busy](t, err)
		sleep(t, time.Hour)
		g.result <- nil
		require.NoError(t, (<-own).err, "Wait does not bound the caller's own effect")
	})
}

func TestDo_InvalidCalls(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		good := callOf("1", `{}`, flight.Policy{})
		for field, c := range map[string]struct {
			call effect.Call
			h    effect.Handler
		}{
			"key":      {effect.Call{}, unreachableHandler(t)},
			"handler":  {good, nil},
			"look_up":  {callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify}), unreachableHandler(t)},
			"recovery": {callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryVerify + 1}), unreachableHandler(t)},
			"input": {effect.Call{Key: good.Key, Submission: flight.Submission{
				Input: flight.NewBlob("", make([]byte, flight.MaxInput+1), flight.MaxInput+1)}}, unreachableHandler(t)},
		} {
			_, err := fd.Do(t.Context(), c.call, c.h)
			require.Equal(t, field, requireAs[*flight.InvalidError](t, err).Field)
		}
		require.Nil(t, fd.Flight(good.Key))
	})
}
