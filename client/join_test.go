package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
)

// ended is how a Do on another goroutine ended.
type ended struct {
	result effect.Result
	err    error
}

// later starts a Do, and gives its end.
func later(ctx context.Context, doer effect.Doer, c effect.Call, h effect.Handler) <-chan ended {
	end := make(chan ended, 1)
	go func() {
		result, err := doer.Do(ctx, c, h)
		end <- ended{result, err}
	}()
	return end
}

// The input is the caller's: what it does with its bytes when it waits no longer is no matter of the effect's.
func TestTheCallersBytesStayItsOwn(t *testing.T) {
	g := newRig(t)
	c := g.connect()
	ctx, leave := context.WithCancel(t.Context())
	one := call(`{"amount":42}`)
	started, gone, sent := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	end := later(ctx, c, one, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-gone
		sent <- string(at.Input())
		return effect.Answer{}, nil
	})
	<-started
	leave()
	require.ErrorIs(t, (<-end).err, context.Canceled)
	copy(one.Submission.Input.Data, `{"amount":99}`)
	close(gone)
	require.Equal(t, `{"amount":42}`, <-sent)
}

// Whoever joins gets a receipt of its own, which says that it joined.
func TestJoinersShareNothing(t *testing.T) {
	for name, refusal := range map[string]error{"succeeded": nil, "refused": effect.Refused(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			c := g.connect()
			started, finish := make(chan struct{}), make(chan struct{})
			first := later(t.Context(), c, call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
				close(started)
				<-finish
				return effect.Answer{Body: []byte("card declined")}, refusal
			})
			<-started
			joined, joins := context.WithCancel(t.Context())
			second := later(seen{Context: t.Context(), asked: joins}, c, call(`1`), forbidden(t))
			<-joined.Done()
			close(finish)
			ends := map[effect.Source]ended{effect.Executed: <-first, effect.Joined: <-second}
			for source, end := range ends {
				require.Equal(t, source, end.result.Source)
				if refusal != nil {
					var declined *effect.Declined
					require.ErrorAs(t, end.err, &declined)
					require.Equal(t, source, declined.Result.Source)
				}
			}
			clear(ends[effect.Executed].result.Answer.Body)
			require.Equal(t, "card declined", string(ends[effect.Joined].result.Answer.Body))
		})
	}
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

var errLeft, errStayed = errors.New("the first one left"), errors.New("the second one left")

// Who joins while the last other caller leaves must not be told of somebody else's end.
func TestJoiningWhatOthersLeave(t *testing.T) {
	g := newRig(t)
	started, finish := make(chan struct{}), make(chan struct{})
	holder := later(t.Context(), g.connect(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{}, nil
	})
	<-started
	c := g.connect()
	for range 2000 {
		one, leave := context.WithCancelCause(t.Context())
		here, isHere := context.WithCancel(t.Context())
		first := later(seen{Context: one, asked: isHere}, c, call(`1`), forbidden(t))
		<-here.Done()
		two, end := context.WithCancelCause(t.Context())
		there, isThere := context.WithCancel(t.Context())
		go leave(errLeft)
		second := later(seen{Context: two, asked: isThere}, c, call(`1`), forbidden(t))
		<-there.Done()
		require.ErrorIs(t, (<-first).err, errLeft)
		end(errStayed)
		require.ErrorIs(t, (<-second).err, errStayed)
	}
	close(finish)
	require.NoError(t, (<-holder).err)
}
