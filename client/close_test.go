package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// closeInBackground starts a Close, and returns its result.
func closeInBackground(t *testing.T, c *client.Client, timeout time.Duration) <-chan error {
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		closed <- c.Close(ctx)
	}()
	return closed
}

// receive returns the next value of c.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(stateLimit)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		require.FailNow(t, "it does not come")
	}
	return v
}

// Calls that wait for another caller's attempt return ErrClosed at once, with the client's session and without one.
func TestCloseEndsWaits(t *testing.T) {
	for _, warm := range []bool{false, true} {
		g := newFixture(t)
		finish, holder := g.occupied()
		c := g.connect()
		if warm {
			g.useSession(c)
		}
		asked := make(chan struct{}, 1)
		g.setFault(askedFor(asked))
		waiting := doInBackground(context.Background(), c, call(`1`), unreachableHandler(t))
		<-asked
		closed := closeInBackground(t, c, time.Minute)
		require.ErrorIs(t, receive(t, waiting).err, client.ErrClosed)
		require.NoError(t, receive(t, closed))
		close(finish)
		require.NoError(t, (<-holder).err)
	}
}

// Close comes while the answer to an open is on its way: the attempt is abandoned and leaves no doubt, even when the
// ctx of Close has ended.
func TestCloseBetweenOpenAndSend(t *testing.T) {
	for _, warm := range []bool{false, true} {
		for _, timeout := range []time.Duration{time.Minute, 0} {
			t.Run(fmt.Sprintf("client's session=%t timeout=%v", warm, timeout), func(t *testing.T) {
				g := newFixture(t)
				c := g.connect()
				if warm {
					g.useSession(c)
				}
				g.faultOnce(":open", cutLate)
				opening := doInBackground(context.Background(), c, call(`1`), unreachableHandler(t))
				<-g.reached
				require.Equal(t, flight.StateRunning, g.flight(key).State)
				closed := closeInBackground(t, c, timeout)
				require.ErrorIs(t, receive(t, opening).err, client.ErrClosed)
				_ = receive(t, closed)
				f := g.flight(key)
				require.Equal(t, flight.StateReady, f.State)
				require.False(t, f.Tainted())
				g.waitForNoSessions()
			})
		}
	}
}

// The late report of a hung handler counts while no newer attempt is open, even after Close has begun. Close waits for
// it.
func TestCloseWaitsForALateReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubbleFixture(t)
		c := g.connect()
		started, finish := make(chan struct{}), make(chan struct{})
		end := doInBackground(t.Context(), c, call(`1`, flight.Policy{AttemptTimeout: time.Second}), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(started)
			<-finish
			return effect.Answer{ExternalID: "ch_1"}, nil
		})
		<-started
		closed := closeInBackground(t, c, time.Hour)
		synctest.Wait()
		var doubt *effect.InDoubt
		require.ErrorAs(t, (<-end).err, &doubt)
		synctest.Wait()
		require.Empty(t, closed)
		close(finish)
		require.NoError(t, <-closed)
		require.Equal(t, flight.StateSucceeded, g.flight(key).State, "it settles its own doubt")
	})
}

// An open that the server is still processing when Close comes is abandoned, too.
func TestCloseWhileTheServerOpens(t *testing.T) {
	for _, warm := range []bool{false, true} {
		t.Run(fmt.Sprintf("client's session=%t", warm), func(t *testing.T) {
			g := newFixture(t)
			c := g.connect()
			if warm {
				g.useSession(c)
			}
			g.faultOnce(":open", slow)
			opening := doInBackground(context.Background(), c, call(`1`), unreachableHandler(t))
			<-g.reached
			closed := closeInBackground(t, c, 0)
			require.ErrorIs(t, receive(t, opening).err, client.ErrClosed)
			_ = receive(t, closed)
			receive(t, g.reached)
			f := g.flight(key)
			require.Nil(t, f.OpenAttempt())
			require.False(t, f.Tainted())
		})
	}
}

// The cause of a caller's context is not read as the answer to the interrupted request: it may be the error of another
// call, as in an errgroup.
func TestContextCause_IsNotReadAsAnAnswer(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.faultOnce(":open", cutLate)
	ctx, leave := context.WithCancelCause(t.Context())
	opening := doInBackground(ctx, c, call(`1`), unreachableHandler(t))
	<-g.reached
	other := &client.Error{Problem: client.Problem{Code: "in_doubt", Status: http.StatusConflict}}
	leave(other)
	require.ErrorIs(t, receive(t, opening).err, other)
	require.NoError(t, c.Close(t.Context()))
	f := g.flight(key)
	require.Equal(t, flight.StateReady, f.State)
	require.False(t, f.Tainted())
}

// A caller gives up between two opens. Its open is abandoned, also if the node that answered has not proposed it: a copy
// that the network made may still open an attempt.
func TestGivingUpBetweenTwoOpens(t *testing.T) {
	for _, proposed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newBubbleFixture(t)
			g.fake.SetFaults(func(l *httpapitest.Faults) {
				l.Before = func(_ context.Context, method string) error {
					if method != "Open" {
						return nil
					}
					return &effect.Busy{Key: key, State: flight.StateRunning, RetryAfter: time.Second, Proposed: proposed}
				}
			})
			c := g.connect()
			ctx, leave := context.WithCancel(t.Context())
			end := doInBackground(ctx, c, call(`1`), unreachableHandler(t))
			synctest.Wait() // it rests
			require.Equal(t, 1, g.count(":open"))
			leave()
			require.ErrorIs(t, (<-end).err, context.Canceled)
			require.NoError(t, c.Close(t.Context()))
			require.Equal(t, 1, g.count(":open"))
			require.Equal(t, 1, g.count(":abandon"))
		})
	}
}

// The answer of a node that has not proposed a request says nothing about another copy of the open. If a copy may have
// arrived, the open is abandoned.
func TestGivingUpAnOpenThatWasSentTwice(t *testing.T) {
	g := newFixture(t)
	opens := 0
	g.setFault(func(r *http.Request) fault {
		if !hasSuffix(r, ":open") {
			return none
		}
		opens++
		return map[int]fault{1: cutBefore, 2: busy}[opens]
	})
	hasty := call(`1`)
	hasty.Wait = time.Millisecond
	c := g.connect()
	_, err := c.Do(t.Context(), hasty, unreachableHandler(t))
	var busy *client.Busy
	require.ErrorAs(t, err, &busy)
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, 2, g.count(":open"))
	require.Equal(t, 1, g.count(":abandon"))
}

// A report of not_done is sent even after the ctx of Close has ended: spooled, it would leave a doubt until the next
// client connects.
func TestClose_NotDoneIsStillReported(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.useSession(c)
	first, second := make(chan struct{}), make(chan struct{})
	var reports atomic.Int32
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method != "Report" {
				return nil
			}
			switch reports.Add(1) {
			case 1:
				close(first)
				<-second
			case 2: // by a handler that Close has ended
				close(second)
			}
			return nil
		}
	})
	other := call(`1`)
	other.Key = flight.MustKey("default/charge/other")
	running := make(chan struct{})
	ended := doInBackground(context.Background(), c, other, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		close(running)
		<-ctx.Done()
		return effect.Answer{}, nil
	})
	<-running
	refusing := doInBackground(context.Background(), c, call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, effect.NotDone(errors.New("no money for it"))
	})
	<-first
	closed := closeInBackground(t, c, 0)
	var unsettled *effect.Unsettled
	require.ErrorAs(t, receive(t, refusing).err, &unsettled)
	require.NoError(t, receive(t, ended).err)
	_ = receive(t, closed)
	require.Zero(t, c.SpooledReports())
	require.Equal(t, flight.StateReady, g.flight(key).State)
}
