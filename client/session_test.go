package client

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// Close begins between the answer to an open and the start of its handler: nothing is started any more, and the attempt is
// abandoned.
func TestCloseBetweenTheAnswerAndTheHandler(t *testing.T) {
	world := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	key := flight.MustKey("default/charge/order-42")
	trip, first := c.trips.join(t.Context(), effect.Call{Key: key})
	require.True(t, first)
	require.True(t, c.gate.enter(&c.work))
	l := leg{client: c, trip: trip, o: c.newOpening(key), handler: func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("the handler must not run")
		return effect.Answer{}, nil
	}}
	answer, err := l.open()
	require.NoError(t, err)
	l.adopt(&answer)

	c.gate.shut() // as Close begins
	c.end()
	again, _, err := l.act(answer)
	require.False(t, again)
	require.ErrorIs(t, err, effect.ErrClosed)
	trip.end(effect.Result{}, err)
	c.work.Done()
	require.NoError(t, c.Close(t.Context()))
	f := world.Flight(key)
	require.Equal(t, flight.Queued, f.State)
	require.False(t, f.Tainted())
}

// A nonce under which the provider was asked needs its session no longer than that takes.
func TestALookUpIsOverWithItsVerdict(t *testing.T) {
	server := httptest.NewServer(httpapi.New(httpapitest.New(t).Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	c.sessions.back(true) // a session pays off
	verify := effect.Call{Key: flight.MustKey("default/charge/order-42"), LookUp: func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) {
		return flight.DidNotHappen, effect.Answer{}, nil
	}}
	verify.Submission.Policy = flight.Policy{Recovery: flight.Verify, SettleDelay: time.Millisecond}
	attempts := 0
	_, err = c.Do(t.Context(), verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		if attempts++; attempts == 1 {
			return effect.Answer{}, errors.New("connection lost")
		}
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
	s, _, err := c.sessions.get(t.Context())
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.nonces, 1, "that of the look-up")
	require.False(t, s.has((*opening).needsSession))
}

// A session that was lost before it could become the client's stands in nobody's way: the next call makes another one.
func TestASessionThatCameTooLate(t *testing.T) {
	world := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	c.sessions.back(true) // a session pays off
	late := c.sessions.add("late", now(), 0, 5000, nil)
	<-late.dying.Done()
	c.sessions.made(late)
	s, _, err := c.sessions.get(t.Context())
	require.NoError(t, err)
	require.NotSame(t, late, s)
}

// A handler that does not return although Close has ended its context may still act: its session is not given up, which would
// let somebody else act beside it, and its late report counts.
func TestCloseLeavesTheSessionOfAHungHandler(t *testing.T) {
	world := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	c.opts.hungAfter = time.Millisecond
	started, finish, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	key := flight.MustKey("default/charge/order-42")
	go func() {
		_, err := c.Do(context.Background(), effect.Call{Key: key}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(started)
			<-finish
			return effect.Answer{}, nil
		})
		ended <- err
	}()
	<-started
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, c.Close(over), "did not return")
	f := world.Flight(key)
	require.Equal(t, flight.Running, f.State)
	require.Contains(t, world.Leases.World.Sessions(), f.Newest().Session.ID)
	close(finish)
	require.NoError(t, <-ended)
	c.work.Wait()
	c.hangUp()
}
