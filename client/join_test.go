package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// doResult is how a Do on another goroutine ended.
type doResult struct {
	result effect.Result
	err    error
}

// doInBackground starts a Do, and gives its end.
func doInBackground(ctx context.Context, doer effect.Doer, c effect.Call, h effect.Handler) <-chan doResult {
	end := make(chan doResult, 1)
	go func() {
		result, err := doer.Do(ctx, c, h)
		end <- doResult{result, err}
	}()
	return end
}

// The input is copied: a caller that has left may change its bytes.
func TestInput_IsCopied(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	ctx, leave := context.WithCancel(t.Context())
	charge := call(`{"amount":42}`)
	started, gone, sent := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	end := doInBackground(ctx, c, charge, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-gone
		sent <- string(at.Input())
		return effect.Answer{}, nil
	})
	<-started
	leave()
	require.ErrorIs(t, (<-end).err, context.Canceled)
	copy(charge.Submission.Input.Data, `{"amount":99}`)
	close(gone)
	require.Equal(t, `{"amount":42}`, <-sent)
}

// seen tells that its end is waited for: then its caller has joined.
type seen struct {
	context.Context
	asked func()
}

func (s seen) Done() <-chan struct{} {
	s.asked()
	return s.Context.Done()
}

// occupied lets another client hold the key of call until finish is closed.
func (fi *fixture) occupied() (finish chan struct{}, holder <-chan doResult) {
	started, finish := make(chan struct{}), make(chan struct{})
	holder = doInBackground(fi.t.Context(), fi.connect(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{}, nil
	})
	<-started
	return finish, holder
}

// askedFor injects no fault; it signals the next open.
func askedFor(asked chan<- struct{}) func(*http.Request) fault {
	return func(r *http.Request) fault {
		if hasSuffix(r, "flights:open") {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return none
	}
}

// A call with KeyDecides runs under the stored input. A caller that joins it with another input does not get its
// receipt.
func TestJoinersOfNoInput(t *testing.T) {
	g := newFixture(t)
	started, finish := make(chan struct{}), make(chan struct{})
	first := doInBackground(t.Context(), g.connect(), call(`{"amount":1}`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{ExternalID: "ch_1"}, nil
	})
	<-started
	c := g.connect()
	whatever := call(`{"amount":1}`)
	whatever.Submission = flight.Submission{}
	asked := make(chan struct{}, 1)
	g.setFault(askedFor(asked))
	second := doInBackground(t.Context(), c, whatever, unreachableHandler(t))
	<-asked
	joined, joins := context.WithCancel(t.Context())
	third := doInBackground(seen{Context: t.Context(), asked: joins}, c, call(`{"amount":2}`), unreachableHandler(t))
	<-joined.Done()
	close(finish)
	require.NoError(t, (<-first).err)
	require.NoError(t, (<-second).err)
	var conflict *effect.Conflict
	require.ErrorAs(t, (<-third).err, &conflict)
}

// After a caller was told to verify, and its verification is lost, other callers may verify at once.
func TestVerify_LostAnswerIsRepeated(t *testing.T) {
	for _, lost := range []fault{cutBefore, refused} {
		g := newFixture(t)
		c := g.connect(client.WithRetryTimeout(time.Millisecond))
		if lost == refused { // and under the client's session
			g.useSession(c)
		}
		verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
		verify.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
			return flight.FindingHappened, effect.Answer{ExternalID: "ch_1"}, nil
		}
		g.setFault(func(r *http.Request) fault { return map[bool]fault{true: lost}[hasSuffix(r, "/verification")] })
		_, err := c.Do(t.Context(), verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, errors.New("connection lost")
		})
		var unavailable *client.Unavailable
		require.ErrorAs(t, err, &unavailable)
		g.setFault(nil)
		end := receive(t, doInBackground(t.Context(), g.connect(), verify, unreachableHandler(t)))
		require.NoError(t, end.err)
		require.Equal(t, "ch_1", end.result.Answer.ExternalID)
	}
}
