package client_test

import (
	"context"
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
