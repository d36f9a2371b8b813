package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/remote"
)

// work runs a worker of the action charge until the test ends, or stop is called.
func (fi *fixture) work(c *client.Client, fn func(ctx context.Context, at client.Attempt, in int) (int, error), opts ...client.WorkerOption) (stop func()) {
	w := c.Worker(opts...)
	client.Work(w, "charge", fn)
	return fi.run(w)
}

// run runs a worker until the test ends, or stop is called.
func (fi *fixture) run(w *client.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(fi.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	fi.t.Cleanup(stop)
	return stop
}

func (fi *fixture) submit(c *client.Client, id string, opts ...client.JobOption) flight.Key {
	fi.t.Helper()
	job, err := c.Submit(fi.t.Context(), client.Key("charge", id), 1, opts...)
	require.NoError(fi.t, err)
	return job.Key
}

// No answer to a claim comes although a job was handed out: the claim is given up. Nobody has begun the job, so it is given back,
// without a doubt, and handed out again.
func TestWorker_ClaimGivenUp_JobIsGivenBack(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect(client.WithRetryTimeout(50 * time.Millisecond))
	key := g.submit(c, "1")
	var abandoned atomic.Bool
	g.setFault(func(r *http.Request) fault {
		switch {
		case hasSuffix(r, ":abandon"):
			abandoned.Store(true)
		case hasSuffix(r, ":claim") && !abandoned.Load():
			return cutAfter
		}
		return none
	})
	var begun atomic.Int32
	g.work(c, func(context.Context, client.Attempt, int) (int, error) { return int(begun.Add(1)), nil })
	got, err := client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	require.Equal(t, 1, got)
	f := g.flight(key)
	require.Greater(t, f.AttemptNumber(), uint32(1))
	require.False(t, f.Tainted(), "nobody had begun the first attempt")
}

// A worker is stopped while the answer to its claim is on its way: it asks once more, and gives back what it was handed.
func TestWorker_StoppedDuringAClaim_GivesBack(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	key := g.submit(c, "1")
	g.faultOnce(":claim", cutLate)
	stop := g.work(c, func(context.Context, client.Attempt, int) (int, error) {
		t.Error("the job was begun")
		return 0, nil
	})
	<-g.reached
	require.NotNil(t, g.flight(key).OpenAttempt())
	stop()
	f := g.waitForFlight(key, func(f *flight.Flight) bool { return f.OpenAttempt() == nil })
	require.False(t, f.Tainted(), "nobody began it")
	require.Equal(t, flight.StateReady, f.State)
}

// What a handler returns says what became of the job; its policy says what follows.
func TestWorker_Outcomes(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	unreadable, err := c.Submit(t.Context(), client.Key("charge", "unreadable"), "text", client.Retry{Attempts: 1})
	require.NoError(t, err)
	refused, unknown := g.submit(c, "refused"), g.submit(c, "unknown")
	panics := g.submit(c, "panics")
	g.work(c, func(_ context.Context, at client.Attempt, _ int) (int, error) {
		switch at.Key().BusinessID() {
		case "refused":
			return 0, client.Refused(errors.New("card declined"))
		case "panics":
			require.NoError(t, at.Sending())
			panic("a bug")
		}
		require.NoError(t, at.Sending())
		return 0, errors.New("the connection broke")
	})
	var declined *client.Declined
	_, err = client.Wait[int](t.Context(), c, refused)
	require.ErrorAs(t, err, &declined)
	for _, key := range []flight.Key{unknown, panics} {
		var doubt *client.InDoubt
		_, err = client.Wait[int](t.Context(), c, key)
		require.ErrorAs(t, err, &doubt, "%s", key)
	}
	var failed *client.Failed
	_, err = client.Wait[int](t.Context(), c, unreadable.Key)
	require.ErrorAs(t, err, &failed)
	require.Contains(t, g.flight(unreadable.Key).Newest().Error, "not a int")
}

// A handler that ends after the time-out of its attempt counts by what it returns, and the report names the time-out.
func TestWorker_Overrun_IsReported(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.work(c, func(ctx context.Context, at client.Attempt, _ int) (int, error) {
		require.NoError(t, at.Sending())
		<-ctx.Done()
		if at.Key().BusinessID() == "fails" {
			return 0, errors.New("the connection broke")
		}
		return 1, nil
	})
	late, fails := g.submit(c, "late", client.Timeout(50*time.Millisecond)), g.submit(c, "fails", client.Timeout(50*time.Millisecond))
	got, err := client.Wait[int](t.Context(), c, late)
	require.NoError(t, err)
	require.Equal(t, 1, got)
	require.Equal(t, "time-out: the handler took longer than its attempt may", g.flight(late).Newest().Error)
	_, err = client.Wait[int](t.Context(), c, fails)
	require.ErrorAs(t, err, new(*client.InDoubt))
	require.Equal(t, "time-out: the handler took longer than its attempt may: the connection broke", g.flight(fails).Newest().Error)
}

// A job may be handed over to its provider's callback: the worker leaves, and the callback brings the receipt.
func TestWorker_Suspends(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	key := g.submit(c, "1")
	var url atomic.Pointer[string]
	stop := g.work(c, func(ctx context.Context, at client.Attempt, _ int) (int, error) {
		given := at.CallbackURL()
		url.Store(&given)
		return 0, at.Suspend(ctx, time.Hour)
	})
	g.waitForFlight(key, func(f *flight.Flight) bool { return f.State == flight.StateWaiting })
	stop()
	path := strings.TrimPrefix(*url.Load(), "http://flightd.test")
	answer, err := http.Post(g.server.URL+path+"?outcome=succeeded", "application/json", strings.NewReader("42"))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	got, err := client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	require.Equal(t, 42, got)
}

// A worker without a look-up performs new jobs under verify. A job whose outcome became unknown while it was handed out is left to a worker
// with a look-up, with pauses. A look-up that finds nothing out leaves the job until the next one, without an open. The attempt after the
// look-ups has a callback URL, as that of every job, if the server takes callbacks.
func TestWorker_LookUps(t *testing.T) {
	for _, url := range []string{"http://flightd.test", ""} {
		testLookUps(t, url)
	}
}

func testLookUps(t *testing.T, publicURL string) {
	g := newFixture(t)
	cfg := g.fake.Config()
	cfg.Callers.PublicURL = publicURL
	g.mu.Lock()
	g.api = httpapi.New(cfg)
	g.mu.Unlock()
	var abandons, opens atomic.Int32
	left := make(chan struct{})
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, ":abandon") && abandons.Add(1) == 7 {
			close(left)
		}
		if hasSuffix(r, ":claim") { // the server does not know yet that the outcome is unknown
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(`"without_look_up":["charge"],`), nil, 1)))
			r.ContentLength = -1
		}
		if hasSuffix(r, "/verification") {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Contains(t, string(body), `"wait_ms":0`, "a job that has to wait is left")
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if hasSuffix(r, ":open") {
			opens.Add(1)
		}
		return none
	})
	key := g.submit(g.connect(), "1", client.JobPolicy(flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond}))
	began := time.Now()
	stop := g.work(g.connect(), func(context.Context, client.Attempt, int) (int, error) { return 0, errors.New("connection lost") })
	<-left
	require.Greater(t, time.Since(began), 300*time.Millisecond)
	stop()

	c := g.connect()
	var lookUps atomic.Int32
	w := c.Worker()
	w.Handle("charge", func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		if lookUps.Add(1) == 1 {
			return flight.FindingNone, effect.Answer{}, nil
		}
		return flight.FindingNotHappened, effect.Answer{}, nil
	}, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		assert.Equal(t, publicURL != "", at.CallbackURL() != "")
		return effect.Answer{ContentType: "application/json", Body: []byte("7")}, nil
	})
	g.run(w)
	got, err := client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	require.Equal(t, 7, got)
	require.EqualValues(t, 2, lookUps.Load())
	require.EqualValues(t, 2, g.flight(key).AttemptNumber())
	require.Zero(t, opens.Load())
}

// The failures of a look-up are logged once, as such.
func TestWorker_FailingLookUp_LoggedOnce(t *testing.T) {
	g := newFixture(t)
	log := new(lines)
	c := g.connect(client.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	var looks atomic.Int32
	w := c.Worker()
	w.Handle("charge", func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		looks.Add(1)
		return flight.FindingNone, effect.Answer{}, errors.New("nosuchname")
	}, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, errors.Join(at.Sending(), errors.New("connection lost"))
	})
	g.submit(c, "1", client.JobPolicy(flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond}))
	stop := g.run(w)
	require.Eventually(t, func() bool { return looks.Load() >= 4 }, time.Minute, time.Millisecond)
	stop()
	require.Equal(t, 1, strings.Count(log.String(), "the look-up failed: nosuchname"), log.String())
	require.NotContains(t, log.String(), "still open")
}

// Wait takes a key without a namespace, made by Key, and the whole key.
func TestWait_ByEitherKey(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	key := g.submit(c, "1")
	g.work(c, func(context.Context, client.Attempt, int) (int, error) { return 7, nil })
	got, err := client.Wait[int](t.Context(), c, client.Key("charge", "1"))
	require.NoError(t, err)
	again, err := client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	require.Equal(t, got, again)
	_, err = client.Wait[int](t.Context(), c, client.Key("", "1"))
	require.ErrorAs(t, err, new(*flight.InvalidError))
}

// An action that is named twice is claimed once, for the last handler.
func TestWorker_ActionTwice_LastHandler(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	w := c.Worker()
	for i := range 2 {
		client.Work(w, "charge", func(context.Context, client.Attempt, int) (int, error) { return i, nil })
	}
	key := g.submit(c, "1")
	g.run(w)
	got, err := client.Wait[int](t.Context(), c, key)
	require.NoError(t, err)
	require.Equal(t, 1, got)
}

// A wait for a job goes on through its approval. Do of the same key is told at once, and acts once it is approved.
func TestApproval_WaitGoesOn(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithActor("shop"))
	job, err := c.Submit(t.Context(), client.Key("refund", "1"), 42, client.Resend(0), client.Approval(time.Hour))
	require.NoError(t, err)
	require.Equal(t, "shop", job.Flight.Approval.RequestedBy)
	require.Equal(t, time.Hour.Milliseconds(), job.Flight.Approval.Policy.Approval.ExpiresMS)
	fingerprint, err := flight.FingerprintJSON([]byte("42"), nil)
	require.NoError(t, err)
	open := effect.Call{Key: job.Key, Submission: flight.Submission{Fingerprint: fingerprint, Input: flight.NewBlob("application/json", []byte("42"), 10)}}
	_, err = c.Do(t.Context(), open, unreachableHandler(t))
	var unapproved *client.Unapproved
	require.ErrorAs(t, err, &unapproved)
	result := make(chan error, 1)
	go func() {
		_, err := client.Wait[int](t.Context(), c, job.Key)
		result <- err
	}()
	f, err := c.Approve(t.Context(), job.Key.FlightID(), job.Flight.Version, client.ApprovalDecision{Reason: "seen"})
	require.NoError(t, err)
	require.Equal(t, "approved", f.Resolution.Result)
	again, err := c.Approve(t.Context(), job.Key.FlightID(), job.Flight.Version, client.ApprovalDecision{})
	require.NoError(t, err)
	require.Equal(t, "replayed", again.Source)
	_, err = c.Reject(t.Context(), job.Key.FlightID(), job.Flight.Version, client.ApprovalDecision{})
	require.ErrorContains(t, err, "already approved")
	_, err = c.Do(t.Context(), open, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{ContentType: "application/json", Body: []byte("7")}, nil
	})
	require.NoError(t, err)
	require.NoError(t, <-result)
}

// No answer to a claim comes although a job was handed out, and the worker and its client end before a renewal lists the attempt.
func TestWorker_LostClaim_GivenBackAtTheEnd(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithRetryTimeout(50 * time.Millisecond))
	var keys []flight.Key
	for i := range remote.MaxListed + 10 { // more than a renewal lists
		keys = append(keys, g.submit(c, fmt.Sprint(i)))
	}
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, ":claim") {
			return cutAfter
		}
		return none
	})
	stop := g.work(c, func(context.Context, client.Attempt, int) (int, error) { return 0, nil }, client.Concurrency(len(keys)))
	for _, key := range keys {
		g.waitForFlight(key, func(f *flight.Flight) bool { return f.OpenAttempt() != nil })
	}
	stop()
	require.NoError(t, c.Close(t.Context()))
	for _, key := range keys {
		f := g.flight(key)
		require.Nil(t, f.OpenAttempt())
		require.False(t, f.Tainted(), "nobody began it")
	}
}

// A claim is rejected because trust in the session has ended at the node, and the session lives: it is renewed for the jobs that run.
func TestWorker_ClaimRejected_SessionIsRenewed(t *testing.T) {
	g := newFixture(t)
	var lose atomic.Bool
	var session atomic.Pointer[flight.SessionID]
	var renewed atomic.Int32
	lost, finish := make(chan struct{}), make(chan struct{})
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.RenewEvery = 5 * time.Millisecond
		l.OnRenewed = func(id flight.SessionID, _ remote.RenewRequest) {
			if first := session.Load(); first != nil && *first == id {
				renewed.Add(1)
			}
		}
		l.Before = func(_ context.Context, method string) error {
			if method == "Claim" && lose.CompareAndSwap(true, false) {
				close(lost)
				return &effect.LeaseLost{}
			}
			return nil
		}
	})
	c := g.connect()
	g.work(c, func(_ context.Context, at client.Attempt, _ int) (int, error) {
		if at.Key().BusinessID() == "2" {
			return 1, nil
		}
		assert.NoError(t, at.Sending())
		lose.Store(true)
		<-finish
		return 1, nil
	})
	first := g.submit(c, "1")
	session.Store(&g.waitForFlight(first, func(f *flight.Flight) bool { return f.OpenAttempt() != nil }).OpenAttempt().Session.ID)
	g.submit(c, "2") // the claim that waits is answered, and the next one is rejected
	<-lost
	before := renewed.Load()
	require.Eventually(t, func() bool { return renewed.Load() > before+3 }, stateLimit, time.Millisecond)
	close(finish)
	g.waitForFlight(first, func(f *flight.Flight) bool { return f.State == flight.StateSucceeded })
	require.False(t, g.flight(first).Tainted())
}

// The pause that a provider asks for counts also after a look-up.
func TestWorker_PauseAfterALookUp(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	w := c.Worker()
	look := client.Verify(func(context.Context, client.Attempt) (*int, error) { return nil, nil }, time.Millisecond)
	var effects atomic.Int32
	client.Work(w, "charge", func(_ context.Context, at client.Attempt, _ int) (int, error) {
		assert.NoError(t, at.Sending())
		if effects.Add(1) == 1 {
			return 0, errors.New("the answer was lost")
		}
		return 0, effect.RetryAfter(client.NotDone(errors.New("too many")), time.Hour)
	}, look)
	g.run(w)
	key := g.submit(c, "1", look)
	f := g.waitForFlight(key, func(f *flight.Flight) bool { return f.State == flight.StateScheduled })
	require.Greater(t, f.NotBefore, flight.Time(time.Now().Add(50*time.Minute).UnixMilli()))
}

func TestWorker_RunsAgain(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	w := c.Worker()
	client.Work(w, "charge", func(context.Context, client.Attempt, int) (int, error) { return 1, nil })
	for _, id := range []string{"1", "2"} {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, w.Run(ctx)) })
		_, err := client.Wait[int](t.Context(), c, g.submit(c, id))
		require.NoError(t, err)
		cancel()
		running.Wait()
	}
}

// Client.Close waits for handlers no longer than its context, although the worker would drain for longer.
func TestWorker_ClientClosed_EndsHandlers(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	begun := make(chan struct{})
	g.work(c, func(ctx context.Context, _ client.Attempt, _ int) (int, error) {
		close(begun)
		<-ctx.Done()
		return 0, client.NotDone(ctx.Err())
	}, client.Drain(time.Hour))
	g.submit(c, "1")
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, c.Close(ctx), "and no handler hangs")
}
