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
		call, g := callOf("1", `{"amount":42}`, flight.Policy{}), newGate()
		var calls []<-chan told
		for range 100 {
			calls = append(calls, do(t.Context(), fd, call, g.handle))
		}
		<-g.in
		synctest.Wait()
		g.out <- nil
		sources := map[effect.Source]int{}
		for _, c := range calls {
			got := <-c
			require.NoError(t, got.err)
			require.Equal(t, "paid", string(got.result.Answer.Body))
			sources[got.result.Source]++
			clear(got.result.Answer.Body) // each caller has its own copy
		}
		require.Equal(t, map[effect.Source]int{effect.Executed: 1, effect.Joined: 99}, sources)
		again, err := fd.Do(t.Context(), call, never(t))
		require.NoError(t, err)
		require.Equal(t, effect.Replayed, again.Source)
		require.Equal(t, "paid", string(again.Answer.Body))
	})
}

func TestRefusalsAreSharedAndReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newGate()
		first := do(t.Context(), fd, call, g.handle)
		<-g.in
		second := do(t.Context(), fd, call, g.handle)
		synctest.Wait()
		g.out <- effect.Refused(errors.New("card declined"))
		for source, c := range map[effect.Source]<-chan told{effect.Executed: first, effect.Joined: second} {
			got := <-c
			declined := requireAs[*effect.Declined](t, got.err)
			require.Equal(t, source, declined.Result.Source)
			require.Equal(t, source, got.result.Source)
			require.Equal(t, flight.Refused, got.result.Outcome)
		}
		_, err := fd.Do(t.Context(), call, never(t))
		require.Equal(t, effect.Replayed, requireAs[*effect.Declined](t, err).Result.Source)
	})
}

// Another input under the same key is rejected at once, in every state of the first call.
func TestHazard30_AnotherInput(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, other, g := callOf("1", `{"amount":42}`, flight.Policy{}), callOf("1", `{"amount":43}`, flight.Policy{}), newGate()
		conflict := func(d effect.Doer) {
			t.Helper()
			began := time.Now()
			_, err := d.Do(t.Context(), other, never(t))
			require.Equal(t, []string{"/amount"}, requireAs[*effect.Conflict](t, err).Fields)
			require.Zero(t, time.Since(began))
		}
		first := do(t.Context(), fd, call, g.handle)
		<-g.in
		conflict(fd)                                   // joined nowhere
		conflict(fd.Restart(t, flightdtest.Options{})) // another process
		g.out <- nil
		require.NoError(t, (<-first).err)
		conflict(fd)
		fd.Ledger.Advance(flight.DefaultRetention + time.Hour)
		f := fd.Flight(call.Key)
		_, err := fd.Ledger.Propose(t.Context(), &flight.Expire{Key: call.Key, Generation: f.Generation})
		require.NoError(t, err)
		_, err = fd.Do(t.Context(), other, never(t))
		require.Equal(t, call.Key, requireAs[*effect.Conflict](t, err).Key)
		_, err = fd.Do(t.Context(), call, never(t))
		expired := requireAs[*effect.Expired](t, err)
		require.Equal(t, call.Key, expired.Key, "a tombstone has no key; the key is the caller's")
		require.Equal(t, flight.StateSucceeded, expired.Outcome)
	})
}

// The first call has not opened an attempt yet.
func TestHazard30_AnotherInputWhileTheFirstWaits(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, c := callOf("1", `{"amount":42}`, flight.Policy{}), new(counted)
		theirs := openElsewhere(t, fd, call)
		first := do(t.Context(), fd, call, c.handle)
		synctest.Wait()
		_, err := fd.Do(t.Context(), callOf("1", `{"amount":43}`, flight.Policy{}), never(t))
		require.Equal(t, []string{"/amount"}, requireAs[*effect.Conflict](t, err).Fields)
		theirs.abandon()
		require.NoError(t, (<-first).err)
	})
}

// Two callers in two processes start at once with different inputs: one acts, the other gets *effect.Conflict.
func TestHazard30_AnotherInputAtTheSameTime(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		other := fd.Restart(t, flightdtest.Options{})
		g := newGate()
		a := do(t.Context(), fd, callOf("1", `{"a":1}`, flight.Policy{}), g.handle)
		b := do(t.Context(), other, callOf("1", `{"a":2}`, flight.Policy{}), g.handle)
		<-g.in
		synctest.Wait()
		var lost told
		select {
		case lost = <-a:
			a = b
		case lost = <-b:
		}
		requireAs[*effect.Conflict](t, lost.err)
		g.out <- nil
		require.NoError(t, (<-a).err)
	})
}

func TestACallerThatGoesEndsOnlyItsWait(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newGate()
		ctx, cancel := context.WithCancelCause(t.Context())
		first := do(ctx, fd, call, func(attempt context.Context, at *effect.Attempt) (effect.Answer, error) {
			answer, err := g.handle(attempt, at)
			require.NoError(t, attempt.Err(), "the attempt's context is not the caller's")
			return answer, err
		})
		<-g.in
		bored := errors.New("bored")
		cancel(bored)
		require.ErrorIs(t, (<-first).err, bored)
		second := do(t.Context(), fd, call, never(t))
		synctest.Wait()
		g.out <- nil
		got := <-second
		require.NoError(t, got.err)
		require.Equal(t, effect.Joined, got.result.Source)
	})
}

func TestWithoutCallersAnEffectInTheAirIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{}), newGate()
		ctx, cancel := context.WithCancel(t.Context())
		first := do(ctx, fd, call, g.handle)
		<-g.in
		cancel()
		<-first
		g.out <- nil
		synctest.Wait()
		require.Equal(t, flight.StateSucceeded, fd.Flight(call.Key).State)
	})
}

// The last caller leaves while its call waits for another holder: the call ends and opens no attempt.
func TestWithoutCallersATripThatWaitsEnds(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{})
		theirs := openElsewhere(t, fd, call)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := do(ctx, fd, call, never(t)), do(ctx, fd, call, never(t))
		asleep(t, time.Minute)
		cancel()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		require.ErrorIs(t, (<-second).err, context.Canceled)
		synctest.Wait()
		theirs.abandon()
		asleep(t, time.Minute)
		require.Nil(t, fd.Flight(call.Key).OpenAttempt(), "the call has ended")
		var c counted
		_, err := fd.Do(t.Context(), call, c.handle)
		require.NoError(t, err)
	})
}

// A caller that joins just when the last one leaves must not get the other caller's cancellation.
func TestJoiningATripThatIsBeingGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, c := callOf("1", `{}`, flight.Policy{}), new(counted)
		for range 100 { // two nonces each; a key remembers 256
			released(t)
			theirs := openElsewhere(t, fd, call)
			ctx, cancel := context.WithCancel(t.Context())
			first := do(ctx, fd, call, c.handle)
			synctest.Wait()
			var group sync.WaitGroup
			group.Go(cancel)
			second := do(t.Context(), fd, call, c.handle)
			group.Wait()
			<-first
			theirs.abandon()
			require.NoError(t, (<-second).err)
			_, err := fd.Ledger.Propose(t.Context(), &flight.Free{Key: call.Key, Generation: fd.Flight(call.Key).Generation})
			require.NoError(t, err)
		}
	})
}

func TestWaitBoundsTheWaitForOthersOnly(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{}`, flight.Policy{})
		call.Wait = 3 * time.Second
		theirs := openElsewhere(t, fd, call)
		began := time.Now()
		_, err := fd.Do(t.Context(), call, never(t))
		require.Positive(t, requireAs[*effect.Busy](t, err).RetryAfter)
		require.Equal(t, call.Wait, time.Since(began))
		theirs.abandon()
		synctest.Wait()

		g := newGate()
		mine := do(t.Context(), fd, call, g.handle)
		<-g.in
		_, err = fd.Do(t.Context(), call, never(t))
		requireAs[*effect.Busy](t, err)
		asleep(t, time.Hour)
		g.out <- nil
		require.NoError(t, (<-mine).err, "Wait does not bound the caller's own effect")
	})
}

func TestWhatADoCannotBe(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		good := callOf("1", `{}`, flight.Policy{})
		for field, c := range map[string]struct {
			call effect.Call
			h    effect.Handler
		}{
			"key":      {effect.Call{}, never(t)},
			"handler":  {good, nil},
			"look_up":  {callOf("1", `{}`, flight.Policy{Recovery: flight.Verify}), never(t)},
			"recovery": {callOf("1", `{}`, flight.Policy{Recovery: flight.Verify + 1}), never(t)},
			"input": {effect.Call{Key: good.Key, Submission: flight.Submission{
				Input: flight.NewBlob("", make([]byte, flight.MaxInput+1), flight.MaxInput+1)}}, never(t)},
		} {
			_, err := fd.Do(t.Context(), c.call, c.h)
			require.Equal(t, field, requireAs[*flight.InvalidError](t, err).Field)
		}
		require.Nil(t, fd.Flight(good.Key))
	})
}

// A joiner with a look-up runs it, even if the call that it joined has none.
func TestJoinersLookForThemselves(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := openElsewhere(t, fd, callOf("1", `{}`, policyOf(flight.Verify)))
		leads := do(t.Context(), fd, callOf("1", `{}`, flight.Policy{}), never(t))
		looks := callOf("1", `{}`, flight.Policy{})
		looks.LookUp = func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) {
			return flight.Happened, effect.Answer{ExternalID: "ch_1"}, nil
		}
		synctest.Wait()
		joiner := do(t.Context(), fd, looks, never(t))
		synctest.Wait()
		a.report(flight.Unknown, "")
		requireAs[*effect.InDoubt](t, (<-leads).err)
		end := <-joiner
		require.NoError(t, end.err)
		require.Equal(t, "ch_1", end.result.Answer.ExternalID)
	})
}
