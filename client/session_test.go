package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
)

// A session is no longer needed for a look-up once its verification is answered.
func TestLookUp_EndsWithItsVerification(t *testing.T) {
	server := httptest.NewServer(httpapi.New(httpapitest.New(t).Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	c.sessions.endSessionless(true) // a session pays off
	verify := effect.Call{Key: flight.MustKey("default/charge/order-42"), LookUp: func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		return flight.FindingNotHappened, effect.Answer{}, nil
	}}
	verify.Submission.Policy = flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond}
	attempts := 0
	_, err = c.Do(t.Context(), verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		if attempts++; attempts == 1 {
			return effect.Answer{}, errors.New("connection lost")
		}
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
	s, _, err := c.sessions.acquire(t.Context())
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.nonces, 1, "that of the look-up")
	require.False(t, s.anyNonce((*opening).needsSession))
}

// A session that was lost before it became current is not used: the next call makes another one.
func TestSession_LostBeforeUseIsReplaced(t *testing.T) {
	fake := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(fake.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	c.sessions.endSessionless(true) // a session pays off
	late := c.sessions.add("late", clock.Now(), 0, 5000, nil)
	<-late.leaseCtx.Done()
	c.sessions.endCreate(late)
	s, _, err := c.sessions.acquire(t.Context())
	require.NoError(t, err)
	require.NotSame(t, late, s)
}

// A handler that does not return after Close has cancelled its context may still act. Its session is not closed, so no
// other caller acts, and its late report counts.
func TestCloseLeavesTheSessionOfAHungHandler(t *testing.T) {
	fake := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(fake.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool(), func(o *options) { o.times.hungAfter = time.Millisecond })
	require.NoError(t, err)
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
	f := fake.Flight(key)
	require.Equal(t, flight.StateRunning, f.State)
	require.Contains(t, fake.Leases.Etcd.Sessions(), f.Newest().Session.ID)
	close(finish)
	require.NoError(t, <-ended)
	<-c.runner.Work.BeginClose()
	c.http.CloseIdleConnections()
}

// Two listings in a row decide that this process does not know an attempt. So one renewal of a session runs at a time, and calls
// that need one at the same moment share it.
func TestSession_OneRenewalAtATime(t *testing.T) {
	fake := httpapitest.New(t)
	api := httpapi.New(fake.Config())
	var running, most, all atomic.Int32
	enough := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/renew") {
			all.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-enough
		}
		api.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithoutSpool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	c.sessions.endSessionless(true) // a session pays off
	s, _, err := c.sessions.acquire(t.Context())
	require.NoError(t, err)
	const calls = 50
	var renewing sync.WaitGroup
	for range calls {
		renewing.Go(func() { require.True(t, s.renew()) })
	}
	require.Eventually(t, func() bool { return all.Load() > 0 }, time.Minute, time.Millisecond)
	close(enough)
	renewing.Wait()
	require.Equal(t, int32(1), most.Load(), "renewals ran at the same time")
	require.Less(t, all.Load(), int32(calls/2), "nobody shared a renewal")
}

// A session is renewed for a claim without an answer until a renewal has listed what the claim has opened.
func TestSession_LostClaim(t *testing.T) {
	s, none := &session{nonces: map[string]*opening{}}, func(*opening) bool { return false }
	claim := &sentClaim{expiresAt: clock.Now()}
	s.claims = append(s.claims, claim)
	require.True(t, s.isNeeded(none), "its answer is awaited")
	s.endClaim(claim, nil, true)
	require.True(t, s.isNeeded(none))
	s.listedAt = clock.Now()
	require.False(t, s.isNeeded(none))
}

// The server is away when a handler hangs, and when it has ended: its own report replaces the one of an unknown outcome in the spool.
func TestReplaceReport(t *testing.T) {
	for _, back := range []bool{true, false} {
		fake := httpapitest.New(t)
		api := httpapi.New(fake.Config())
		var away atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() && strings.HasSuffix(r.URL.Path, "/report") {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			api.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		c, err := Connect(t.Context(), server.URL, WithSpool(t.TempDir()), func(o *options) { o.times.hungAfter, o.times.report = time.Millisecond, 50*time.Millisecond })
		require.NoError(t, err)
		key, finish := flight.MustKey("default/charge/order-42"), make(chan struct{})
		away.Store(true)
		_, err = c.Do(t.Context(), effect.Call{Key: key, Submission: flight.Submission{Policy: flight.Policy{AttemptTimeout: 500 * time.Millisecond}}},
			func(context.Context, *effect.Attempt) (effect.Answer, error) {
				<-finish
				return effect.Answer{}, effect.NotDone(errors.New("refused"))
			})
		var unrecorded *effect.Unrecorded
		require.ErrorAs(t, err, &unrecorded)
		unknown := c.spool.files()
		require.Len(t, unknown, 1)
		away.Store(!back)
		close(finish)
		if !back {
			require.Eventually(t, func() bool { files := c.spool.files(); return len(files) == 1 && files[0] != unknown[0] }, time.Minute, time.Millisecond)
			away.Store(false)
		}
		require.Eventually(t, func() bool { return fake.Flight(key).OpenAttempt() == nil && c.SpooledReports() == 0 }, time.Minute, time.Millisecond)
		require.False(t, fake.Flight(key).Tainted(), "back: %v", back)
		require.Empty(t, c.SessionsInUse())
		require.NoError(t, c.Close(t.Context()))
	}
}

// A worker's Run ends although a handler ignores the end of its context. Close waits for that handler, and says that it hangs.
func TestWorker_HandlerHangs_RunEnds(t *testing.T) {
	fake := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(fake.Config()))
	t.Cleanup(server.Close)
	c, err := Connect(t.Context(), server.URL, WithSpool(t.TempDir()), func(o *options) { o.times.hungAfter = time.Millisecond })
	require.NoError(t, err)
	begun, finish := make(chan struct{}), make(chan struct{})
	w := c.Worker(Drain(time.Millisecond))
	Work(w, "charge", func(context.Context, Attempt, int) (int, error) {
		close(begun)
		<-finish
		return 1, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	_, err = c.Submit(t.Context(), Key("charge", "order-42"), 1)
	require.NoError(t, err)
	<-begun
	stop()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, runner.ErrHung)
	case <-time.After(time.Minute):
		t.Error("Run does not end")
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Close(soon), runner.ErrHung)
	close(finish)
	require.Eventually(t, func() bool {
		return fake.Flight(flight.MustKey("default/charge/order-42")).State == flight.StateSucceeded
	}, time.Minute, time.Millisecond)
}
