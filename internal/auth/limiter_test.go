package auth_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// usage is a ledger that counts what the test says.
type usage struct {
	held   int
	stored int64
}

func (u *usage) HeldIn(string) int     { return u.held }
func (u *usage) StoredIn(string) int64 { return u.stored }

func newLimiter(t *testing.T, node auth.NodeLimits, limits auth.Limits) (*auth.Limiter, *usage, *store) {
	s, u := &store{}, &usage{}
	s.put(t, auth.LimitsID("billing"), limits.Encode())
	return auth.NewLimiter(auth.NewDirectory(s, nil), u, node), u, s
}

func TestLimiter_Rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, s := newLimiter(t, auth.NodeLimits{}, auth.Limits{OpensPerSecond: 10, Burst: 2})
		open := func() error {
			end, err := l.StartOpen("billing")
			if err == nil {
				end()
			}
			return err
		}
		require.NoError(t, open())
		require.NoError(t, open())
		require.NoError(t, l.AllowSession("billing"), "sessions have their own rate")
		var limited *auth.RateLimited
		require.ErrorAs(t, open(), &limited)
		require.Equal(t, 100*time.Millisecond, limited.RetryAfter)
		end, err := l.StartOpen("shipping")
		require.NoError(t, err, "another namespace has its own rate")
		end()
		time.Sleep(limited.RetryAfter)
		require.NoError(t, open())
		require.Error(t, open())
		s.put(t, auth.LimitsID("billing"), auth.Limits{OpensPerSecond: 1000}.Encode())
		require.NoError(t, open(), "a new document applies to the next open")
	})
}

// The bound on opens counts the opens that are served, and not those that wait for another caller.
func TestLimiter_OpensInProgress(t *testing.T) {
	l, _, _ := newLimiter(t, auth.NodeLimits{MaxOpens: 2, MaxWaits: 4}, auth.Limits{MaxWaits: 2})
	first, err := l.StartOpen("billing")
	require.NoError(t, err)
	_, err = l.StartOpen("shipping")
	require.NoError(t, err)
	_, err = l.StartOpen("billing")
	var limited *auth.RateLimited
	require.ErrorAs(t, err, &limited)
	require.Equal(t, time.Second, limited.RetryAfter)

	wait, ok := l.StartWait("billing", true)
	require.True(t, ok)
	third, err := l.StartOpen("billing")
	require.NoError(t, err, "the first open waits")
	wait()
	third()
	first()
	_, err = l.StartOpen("billing")
	require.NoError(t, err)

	_, ok = l.StartWait("billing", false)
	require.True(t, ok)
	_, ok = l.StartWait("billing", false)
	require.True(t, ok)
	_, ok = l.StartWait("billing", false)
	require.False(t, ok, "the namespace waits twice")
	for range 2 {
		_, ok = l.StartWait("shipping", false)
		require.True(t, ok)
	}
	_, ok = l.StartWait("orders", false)
	require.False(t, ok, "the node waits four times")
}

func TestLimiter_Sessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := newLimiter(t, auth.NodeLimits{}, auth.Limits{})
		created := 0
		for l.AllowSession("billing") == nil {
			created++
		}
		require.Equal(t, 1000, created)
		require.NoError(t, l.AllowSession("shipping"), "another namespace has its own rate")
		time.Sleep(time.Second)
		require.NoError(t, l.AllowSession("billing"))
	})
}

func TestLimiter_Scans(t *testing.T) {
	l, _, _ := newLimiter(t, auth.NodeLimits{}, auth.Limits{})
	first, err := l.StartScan("billing")
	require.NoError(t, err)
	_, err = l.StartScan("billing")
	require.NoError(t, err)
	_, err = l.StartScan("billing")
	var limited *auth.RateLimited
	require.ErrorAs(t, err, &limited)
	first()
	_, err = l.StartScan("billing")
	require.NoError(t, err)
	for n := range 6 {
		_, err = l.StartScan(fmt.Sprint("team-", n))
		require.NoError(t, err)
	}
	_, err = l.StartScan("late")
	require.ErrorAs(t, err, &limited, "the node has eight scans")
}

// The limiter forgets namespaces that use nothing, and none that does.
func TestLimiter_ForgetsIdleNamespaces(t *testing.T) {
	l, _, _ := newLimiter(t, auth.NodeLimits{}, auth.Limits{MaxStreams: 1})
	_, err := l.StartStream("billing")
	require.NoError(t, err)
	for n := range 10_000 {
		end, err := l.StartScan(fmt.Sprint("namespace-", n))
		require.NoError(t, err)
		end()
	}
	require.Less(t, l.Namespaces(), 5000)
	_, err = l.StartStream("billing")
	require.Error(t, err, "its stream is still counted")
}

func TestLimiter_Streams(t *testing.T) {
	l, _, _ := newLimiter(t, auth.NodeLimits{}, auth.Limits{MaxStreams: 1})
	end, err := l.StartStream("billing")
	require.NoError(t, err)
	_, err = l.StartStream("billing")
	require.ErrorContains(t, err, "namespace billing may have 1 open event streams")
	end()
	_, err = l.StartStream("billing")
	require.NoError(t, err)
}

func TestLimiter_AttemptsAndFlights(t *testing.T) {
	l, u, _ := newLimiter(t, auth.NodeLimits{}, auth.Limits{MaxOpen: 2, MaxFlights: 5})
	key := flight.MustKey("billing/charge/1")
	u.held, u.stored = 1, 4
	require.NoError(t, l.AllowAttempt(key, true))
	u.stored = 5
	var quota *effect.QuotaExceeded
	require.ErrorAs(t, l.AllowAttempt(key, true), &quota)
	require.NoError(t, l.AllowAttempt(key, false), "the flight is stored already")
	u.held = 2
	var many *effect.TooMany
	require.ErrorAs(t, l.AllowAttempt(key, false), &many)
	require.NoError(t, l.AllowAttempt(flight.MustKey("shipping/charge/1"), true), "another namespace has the generous defaults")
}

// Without a directory only the bounds of the node apply.
func TestLimiter_WithoutDirectory(t *testing.T) {
	l := auth.NewLimiter(nil, nil, auth.NodeLimits{MaxOpens: 1})
	end, err := l.StartOpen("billing")
	require.NoError(t, err)
	_, err = l.StartOpen("billing")
	require.Error(t, err)
	end()
	require.NoError(t, l.AllowSession("billing"))
	require.NoError(t, l.AllowAttempt(flight.MustKey("billing/charge/1"), true))
	_, err = l.StartStream("billing")
	require.NoError(t, err)
	_, ok := l.StartWait("billing", false)
	require.True(t, ok)
}
