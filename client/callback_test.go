package client_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

var film = flight.MustKey("default/render/film-7")

// callBack is the provider that reports an outcome.
func (fi *fixture) callBack(url, outcome string) {
	fi.t.Helper()
	path, ok := strings.CutPrefix(url, "http://flightd.test")
	require.True(fi.t, ok, "%q", url)
	resp, err := fi.server.Client().Post(fi.server.URL+path+"?outcome="+outcome, "application/json", strings.NewReader(`{"id":"video","text":"7.mp4"}`))
	require.NoError(fi.t, err)
	require.NoError(fi.t, resp.Body.Close())
	require.Equal(fi.t, http.StatusOK, resp.StatusCode)
}

func (fi *fixture) render(c *client.Client, handler func(context.Context, client.Attempt) (message, error)) (message, error) {
	return client.Do(fi.t.Context(), c, client.Key("render", "film-7"), 1, handler, client.WithCallback())
}

// The handler hands the attempt over and leaves: its session and its process end, and the callback ends the flight.
func TestSuspend(t *testing.T) {
	for name, session := range map[string]bool{"session of the client": true, "session of one attempt": false} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			c := g.connect()
			if session {
				g.useSession(c)
			}
			g.faultOnce("/suspend", cutAfter)
			var url string
			_, err := g.render(c, func(ctx context.Context, at client.Attempt) (message, error) {
				require.NoError(t, at.Sending())
				url = at.CallbackURL()
				err := at.Suspend(ctx, time.Hour)
				require.Error(t, at.Sending(), "nothing is sent after the suspend")
				return message{}, err
			})
			var suspended *client.Suspended
			require.ErrorAs(t, err, &suspended)
			require.Equal(t, film, suspended.Key)
			require.Greater(t, time.Until(suspended.Until), 30*time.Minute)
			require.Equal(t, 2, g.count("/suspend"), "repeated after a lost answer")
			require.Zero(t, g.count("film-7/report"))
			require.Eventually(t, func() bool {
				claims, err := g.fake.Leases.Claims(t.Context())
				return err == nil && len(claims) == 0
			}, stateLimit, time.Millisecond, "its claim is released")

			require.NoError(t, c.Close(t.Context()))
			g.waitForNoSessions()
			require.NoError(t, g.fake.Sweeper.Sweep(t.Context()))
			require.Equal(t, flight.StateWaiting, g.flight(film).State, "the end of the session ends nothing")
			g.callBack(url, "succeeded")

			msg, err := g.render(g.connect(), func(context.Context, client.Attempt) (message, error) {
				t.Error("the handler must not run")
				return message{}, nil
			})
			require.NoError(t, err)
			require.Equal(t, message{"video", "7.mp4"}, msg)
			require.Len(t, g.flight(film).Attempts, 1)
		})
	}
}

// A call of the key waits for the callback.
func TestSuspend_AnotherCallWaits(t *testing.T) {
	g := newFixture(t)
	var url string
	_, err := g.render(g.connect(), func(ctx context.Context, at client.Attempt) (message, error) {
		url = at.CallbackURL()
		return message{}, at.Suspend(ctx, time.Hour)
	})
	var suspended *client.Suspended
	require.ErrorAs(t, err, &suspended)
	done := make(chan message)
	go func() {
		msg, err := g.render(g.connect(), noMessage)
		if err != nil {
			t.Error(err)
		}
		done <- msg
	}()
	require.Eventually(t, func() bool { return g.count(":open") == 2 }, stateLimit, time.Millisecond)
	g.callBack(url, "succeeded")
	require.Equal(t, message{"video", "7.mp4"}, <-done)
}

func noMessage(context.Context, client.Attempt) (message, error) { return message{}, nil }

// The callback may come before the suspend: then the call has its result.
func TestSuspend_CallbackFirst(t *testing.T) {
	g := newFixture(t)
	msg, err := g.render(g.connect(), func(ctx context.Context, at client.Attempt) (message, error) {
		g.callBack(at.CallbackURL(), "succeeded")
		return message{}, at.Suspend(ctx, time.Hour)
	})
	require.NoError(t, err)
	require.Equal(t, message{"video", "7.mp4"}, msg)
}

// A server without a public URL opens nothing for a call that wants a callback, and an attempt without one is not suspended.
func TestSuspend_NotPossible(t *testing.T) {
	g := newFixture(t)
	_, err := client.Do(t.Context(), g.connect(), client.Key("render", "film-7"), 1, func(ctx context.Context, at client.Attempt) (message, error) {
		require.Empty(t, at.CallbackURL())
		return message{}, client.NotDone(at.Suspend(ctx, time.Hour))
	})
	require.ErrorContains(t, err, "the call must set Callback")
	require.Zero(t, g.count("/suspend"))

	cfg := g.fake.Config()
	cfg.Callers.PublicURL = ""
	g.mu.Lock()
	g.api = httpapi.New(cfg)
	g.mu.Unlock()
	_, err = g.render(g.connect(), func(context.Context, client.Attempt) (message, error) {
		t.Error("the handler must not run")
		return message{}, nil
	})
	require.Equal(t, wire.CallbacksOff, client.CodeOf(err), "%v", err)

	in := flightdtest.New(t)
	wants := call(`1`)
	wants.Callback = true
	_, err = in.Executor.Do(t.Context(), wants, unreachableHandler(t))
	require.ErrorContains(t, err, "callback")
}

// The error of another flight's suspend does not suspend this attempt: its outcome is unknown.
func TestSuspend_OfAnotherFlight(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	_, err := client.Do(t.Context(), c, client.Key("charge", "order-42"), 1, func(ctx context.Context, at client.Attempt) (message, error) {
		return g.render(c, func(ctx context.Context, at client.Attempt) (message, error) {
			return message{}, at.Suspend(ctx, time.Hour)
		})
	})
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	require.Equal(t, flight.StateWaiting, g.flight(film).State)
	require.Equal(t, flight.StateInDoubt, g.flight(key).State)
}
