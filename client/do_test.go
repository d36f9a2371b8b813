package client_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
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

func TestDoOnceThenReplay(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	var at *effect.Attempt
	result, err := c.Do(t.Context(), call(`{"amount": 1}`), func(_ context.Context, a *effect.Attempt) (effect.Answer, error) {
		at = a
		return effect.Answer{ExternalID: "ch_1", ContentType: "application/json", Body: []byte(`{"id": "ch_1"}`)}, nil
	})
	require.NoError(t, err)
	require.Equal(t, effect.SourceExecuted, result.Source)
	require.Equal(t, `{"id": "ch_1"}`, string(result.Answer.Body), "byte for byte")
	require.Equal(t, "ch_1", result.Answer.ExternalID)
	require.EqualValues(t, 1, result.Attempt)
	require.Equal(t, key, at.Key())
	require.EqualValues(t, 1, at.Number())
	require.Equal(t, `{"amount": 1}`, string(at.Input()))
	require.NotEmpty(t, at.IdempotencyKey())
	require.NotEmpty(t, at.FencingToken())
	require.Nil(t, at.Previous())

	again, err := g.connect().Do(t.Context(), call(`{"amount":1.0}`), unreachableHandler(t))
	require.NoError(t, err)
	require.Equal(t, effect.SourceReplayed, again.Source)
	require.Equal(t, result.Answer, again.Answer)
	require.Equal(t, result.Digest, again.Digest)
	require.Equal(t, result.At, again.At)
	require.Zero(t, g.count("/v1/sessions"), "neither one effect nor replays need a session that is kept")
	g.waitForNoSessions()
}

// 100 callers in two clients: one effect, one result.
func TestDoManyCallers(t *testing.T) {
	g := newFixture(t)
	clients := []*client.Client{g.connect(), g.connect()}
	var ran atomic.Int32
	var sources [3]atomic.Int32
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			result, err := clients[i%2].Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
				ran.Add(1)
				return effect.Answer{Body: []byte("x"), ContentType: "text/plain"}, nil
			})
			if err != nil || string(result.Answer.Body) != "x" {
				t.Errorf("%v %v", result, err)
			}
			sources[result.Source].Add(1)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, ran.Load())
	require.EqualValues(t, 1, sources[effect.SourceExecuted].Load())
	require.LessOrEqual(t, g.count(":open"), 60, "callers of one key in one client share one wait")
}

func TestDoErrors(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	failing := func(err error, send bool) effect.Handler {
		return func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			at.Watch()
			if send {
				require.NoError(t, at.Sending())
			}
			return effect.Answer{}, err
		}
	}
	boom := errors.New("boom")
	_, err := c.Do(t.Context(), call(`1`), failing(boom, false))
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.ErrorIs(t, err, boom)
	require.Equal(t, flight.OutcomeNotDone, unsettled.Outcome)

	_, err = c.Do(t.Context(), call(`2`), unreachableHandler(t))
	var conflict *client.Conflict
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []string{""}, conflict.Fields, "the inputs as wholes")
	require.Equal(t, client.Code("idempotency_conflict"), client.CodeOf(err))

	_, err = c.Do(t.Context(), call(`1`), failing(boom, true))
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	require.Equal(t, g.flight(key).Version, doubt.Version)
	_, err = c.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.ErrorAs(t, err, &doubt)
	require.Equal(t, key, doubt.Key)
	require.Equal(t, g.flight(key).Version, doubt.Version)

	f, err := c.Resolve(t.Context(), key.FlightID(), doubt.Version.String(), client.ResolveRequest{Result: "not_happened", Reason: "test"})
	require.NoError(t, err)
	require.Equal(t, "ready", f.State)
	_, err = c.Do(t.Context(), call(`1`), failing(client.Refused(boom), true))
	var declined *client.Declined
	require.ErrorAs(t, err, &declined)
	require.Equal(t, "boom", string(declined.Result.Answer.Body))
	require.Equal(t, effect.SourceExecuted, declined.Result.Source)
	_, err = c.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.ErrorAs(t, err, &declined)
	require.Equal(t, effect.SourceReplayed, declined.Result.Source)
}

// A pause that the provider asks for is the caller's to keep.
func TestRetryAfterIsTold(t *testing.T) {
	_, err := newFixture(t).connect().Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, effect.RetryAfter(client.NotDone(errors.New("too many")), time.Minute)
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, time.Minute, effect.RequestedPause(err))
}

func TestDoRefusesWhatCannotTravel(t *testing.T) {
	c := newFixture(t).connect()
	for _, bad := range []effect.Call{
		{},
		call(`1`, flight.Policy{Recovery: flight.RecoveryVerify}),
		call(`1`, flight.Policy{AttemptTimeout: -1}),
		call(`1`, flight.Policy{Retry: flight.RetryPolicy{Attempts: 2}}),
		{Key: key, Submission: flight.Submission{Input: flight.NewBlob("text/plain", []byte("x"), 10)}},
	} {
		var invalid *flight.InvalidError
		_, err := c.Do(t.Context(), bad, unreachableHandler(t))
		require.ErrorAs(t, err, &invalid)
	}
	_, err := c.Do(t.Context(), call(`1`), nil)
	require.Error(t, err)
}

// A panic may hide an effect.
func TestDoPanic(t *testing.T) {
	g := newFixture(t)
	_, err := g.connect().Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) { panic("ouch") })
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	require.Contains(t, g.flight(key).Newest().Error, "ouch")
}

// Lost answers have no effect: the nonce and the fencing token identify a repeated request.
func TestLostAnswers(t *testing.T) {
	for _, path := range []string{"/v1/sessions", ":open", "/report"} {
		for name, f := range map[string]fault{"after": cutAfter, "before": cutBefore, "refused": refused} {
			t.Run(path+" "+name, func(t *testing.T) {
				g := newFixture(t)
				c := g.connect()
				if path == "/v1/sessions" { // the first effect goes without
					other := call(`1`)
					other.Key = flight.MustKey("default/charge/other")
					_, err := c.Do(t.Context(), other, succeedingHandler(`1`))
					require.NoError(t, err)
				}
				g.faultOnce(path, f)
				result, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
				require.NoError(t, err)
				require.EqualValues(t, 1, result.Attempt)
				require.EqualValues(t, 1, g.flight(key).AttemptCount)
				require.Zero(t, c.SpooledReports())
			})
		}
	}
}

// The caller's own context ends only its wait: the effect goes on and is reported.
func TestCallerLeaves(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	ctx, leave := context.WithCancel(t.Context())
	started, finish := make(chan struct{}), make(chan struct{})
	returned := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, call(`1`), func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
			close(started)
			<-finish
			return effect.Answer{Body: []byte("done")}, ctx.Err()
		})
		returned <- err
	}()
	<-started
	leave()
	require.ErrorIs(t, <-returned, context.Canceled)
	close(finish)
	f := g.waitForFlight(key, func(f *flight.Flight) bool { return f.State.Terminal() })
	require.Equal(t, flight.StateSucceeded, f.State)
}

// A caller that gives up its wait for another caller's attempt leaves nothing behind.
func TestWaitEnds(t *testing.T) {
	g := newFixture(t)
	holder, waiter := g.connect(), g.connect()
	started, finish := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := holder.Do(context.Background(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			close(started)
			<-finish
			return effect.Answer{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := waiter.Do(ctx, call(`1`), unreachableHandler(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	bounded := call(`1`)
	bounded.Wait = 30 * time.Millisecond
	_, err = waiter.Do(t.Context(), bounded, unreachableHandler(t))
	var busy *client.Busy
	require.ErrorAs(t, err, &busy)
	require.Equal(t, flight.StateRunning, busy.State)
	close(finish)
	<-done
	result, err := waiter.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.NoError(t, err)
	require.Equal(t, effect.SourceReplayed, result.Source)
}

// A cancellation is requested: the next renewal cancels the context of the attempt.
func TestCancelReachesTheAttempt(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect(client.WithActor("eve"))
	started := make(chan struct{})
	go func() {
		<-started
		f, err := c.Flight(t.Context(), key.FlightID())
		if err == nil {
			_, err = c.Cancel(t.Context(), key.FlightID(), f.Version, client.OperatorRequest{Reason: "not wanted"})
		}
		if err != nil {
			t.Error(err)
		}
	}()
	_, err := c.Do(t.Context(), call(`1`), func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-ctx.Done()
		return effect.Answer{}, client.NotDone(context.Cause(ctx))
	})
	var failed *client.Failed
	require.ErrorAs(t, err, &failed)
	require.Equal(t, flight.StateCancelled, failed.State)
	require.Equal(t, "eve", g.flight(key).Cancel.Actor)
}

// The attempt's own time-out ends its context, and a handler that does not return is of unknown outcome.
func TestAttemptTimeout(t *testing.T) {
	g := newFixture(t)
	_, err := g.connect().Do(t.Context(), call(`1`, flight.Policy{AttemptTimeout: 20 * time.Millisecond}),
		func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
			<-ctx.Done()
			return effect.Answer{}, ctx.Err()
		})
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
	require.Contains(t, g.flight(key).Newest().Error, "deadline")
}

// Goroutines that outlive their handler, or its timeout, start nothing: the attempt was reported as not_done, and the
// next one may be open.
func TestNothingStartsWhenTheAttemptIsOver(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	left := make(chan *effect.Attempt, 1)
	_, err := c.Do(t.Context(), call(`1`), func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		at.Watch()
		left <- at
		return effect.Answer{}, errors.New("gave up waiting for what it started")
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, flight.OutcomeNotDone, unsettled.Outcome)
	require.Error(t, (<-left).Sending())

	timed := call(`1`, flight.Policy{AttemptTimeout: 20 * time.Millisecond})
	timed.Key = flight.MustKey("default/charge/timed")
	_, err = c.Do(t.Context(), timed, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		<-ctx.Done()
		return effect.Answer{}, at.Sending()
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, flight.OutcomeNotDone, unsettled.Outcome)
	require.False(t, g.flight(timed.Key).Tainted())
}

// The outcome of a handler that ends its goroutine, like a failing test, is unknown. No caller waits for ever.
func TestGoexit_IsUnknownOutcome(t *testing.T) {
	g := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := g.connect().Do(ctx, call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		runtime.Goexit()
		return effect.Answer{}, nil
	})
	var doubt *client.InDoubt
	require.ErrorAs(t, err, &doubt)
}

// Before a send, the end of the goroutine means not_done, like an error: nothing has been sent, and nothing can be sent
// any more.
func TestGoexit_BeforeSendIsNotDone(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	var left *effect.Attempt
	_, err := c.Do(t.Context(), call(`1`), func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		left = at
		at.Watch()
		runtime.Goexit()
		return effect.Answer{}, nil
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, flight.OutcomeNotDone, unsettled.Outcome)
	require.Error(t, left.Sending())
	_, err = c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.NoError(t, err)
}

// The first caller's input and policy apply: a resend must send the first input.
func TestFirstInputStands(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	first := call(`{"text":"one"}`, flight.Policy{Recovery: flight.RecoveryResend})
	first.Submission.Fingerprint = flight.NoFingerprint
	_, err := c.Do(t.Context(), first, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.NoError(t, at.Sending())
		return effect.Answer{}, errors.New("connection lost")
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Equal(t, flight.OutcomeUnknown, unsettled.Outcome)
	second := call(`{"text":"two"}`)
	second.Submission.Fingerprint = flight.NoFingerprint
	_, err = g.connect().Do(t.Context(), second, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.Equal(t, `{"text":"one"}`, string(at.Input()))
		require.EqualValues(t, 2, at.Number())
		require.Equal(t, flight.OutcomeUnknown, at.Previous().Outcome)
		require.Equal(t, "connection lost", at.Previous().Error)
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
}

// Under verify the provider is asked before anybody acts again.
func TestLookUp(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
	looks := 0
	verify.LookUp = func(_ context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
		looks++
		require.NotEmpty(t, at.IdempotencyKey())
		require.EqualValues(t, 1, at.Number())
		return flight.FindingHappened, effect.Answer{ExternalID: "found", Body: []byte(`{"a": 1}`), ContentType: "application/json"}, nil
	}
	result, err := c.Do(t.Context(), verify, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.NoError(t, at.Sending())
		return effect.Answer{}, errors.New("connection lost")
	})
	require.NoError(t, err)
	require.Equal(t, 1, looks)
	require.Equal(t, "found", result.Answer.ExternalID)
	require.Equal(t, `{"a": 1}`, string(result.Answer.Body))
	require.Equal(t, flight.SourceLookup, g.flight(key).Receipt.Source)
}

// If a look-up fails until the wait ends, the error has the reason of that failure instead of a busy key.
func TestLookUpThatFails(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	for name, look := range map[string]func(){"an error": func() {}, "panic: nosuchname": func() { panic("nosuchname") }} {
		verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond})
		verify.Key, verify.Wait = flight.MustKey("default/charge/"+strings.ReplaceAll(name, " ", "-")), 300*time.Millisecond
		verify.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
			look()
			return flight.FindingNone, effect.Answer{}, errors.New("an error")
		}
		_, err := c.Do(t.Context(), verify, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.NoError(t, at.Sending())
			return effect.Answer{}, errors.New("connection lost")
		})
		var doubt *client.InDoubt
		require.ErrorAs(t, err, &doubt)
		require.Equal(t, "the look-up failed: "+name, doubt.Cause)
	}
}

// A look-up that ends its goroutine counts as one that found nothing out, and its callers get the result.
func TestLookUpThatDoesNotReturn(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond, VerifyAttempts: 1})
	verify.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		runtime.Goexit()
		return flight.FindingHappened, effect.Answer{}, nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Do(ctx, verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, errors.New("connection lost")
	})
	var doubt *effect.InDoubt
	require.ErrorAs(t, err, &doubt)
}

// A look-up that hangs is given up after its timeout and a grace period, as one that found nothing out. Close waits for
// it.
func TestLookUpThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubbleFixture(t)
		c := g.connect()
		verify := call(`1`, flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond, VerifyAttempts: 1})
		moments, home := make(chan time.Time, 2), make(chan struct{})
		verify.LookUp = func(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
			moments <- time.Now()
			<-ctx.Done()
			moments <- time.Now()
			<-home
			return flight.FindingHappened, effect.Answer{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := c.Do(ctx, verify, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, errors.New("connection lost")
		})
		var doubt *effect.InDoubt
		require.ErrorAs(t, err, &doubt)
		asked, ended := <-moments, <-moments
		require.Equal(t, 30*time.Second, ended.Sub(asked))
		require.Equal(t, 45*time.Second, time.Since(asked))
		closed := make(chan error, 1)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		require.Empty(t, closed, "a look-up is still under way")
		close(home)
		require.NoError(t, <-closed)
		require.Equal(t, flight.StateInDoubt, g.flight(key).State, "what it found out came too late")
	})
}

// A receipt over the limit is shortened on the way and never a failed attempt.
func TestLongAnswer(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	long := []byte(strings.Repeat("é", 20<<20))
	result, err := c.Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{ContentType: "text/plain\r\nx: y", Body: long}, nil
	})
	require.NoError(t, err)
	require.True(t, result.Truncated)
	require.Equal(t, len(long), result.Size)
	require.Equal(t, flight.NewBlob("", long, 0).Digest, result.Digest)
	require.Equal(t, long[:flight.MaxReceiptBody], result.Answer.Body)
	receipt, err := c.Receipt(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Equal(t, len(long), receipt.Size)
	require.Equal(t, result.Answer.Body, receipt.Data)
}

// With two servers, of which the first is down, calls succeed.
func TestSeveralServers(t *testing.T) {
	g := newFixture(t)
	dead := newFixture(t)
	dead.server.Close()
	c := g.connectTo(dead.server.URL + "," + g.server.URL)
	_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.NoError(t, err)
	_, err = client.Connect(t.Context(), dead.server.URL, client.WithRetryTimeout(time.Millisecond), client.WithoutSpool())
	var unavailable *client.Unavailable
	require.ErrorAs(t, err, &unavailable)
	require.Equal(t, "unreachable", unavailable.Code)
	for _, bad := range []string{"", "ftp://x", "http://", "http://a/?b=c", " , "} {
		_, err := client.Connect(t.Context(), bad)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, bad)
	}
}

// The answers of other software are not believed.
func TestSomethingElseAnswers(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithRetryTimeout(50 * time.Millisecond))
	g.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html>"))
	})
	_, err := c.Do(t.Context(), call(`1`), unreachableHandler(t))
	require.ErrorContains(t, err, "not flightd")
}

// A server that answers busy at once is not asked again at once.
func TestBusyServersAreNotHammered(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(_ context.Context, method string) error {
			if method == "Open" {
				return &effect.Busy{Key: key, State: flight.StateRunning, RetryAfter: 60 * time.Millisecond}
			}
			return nil
		}
	})
	patient := call(`1`)
	patient.Wait = 200 * time.Millisecond
	_, err := g.connect().Do(t.Context(), patient, unreachableHandler(t))
	var busy *client.Busy
	require.ErrorAs(t, err, &busy)
	require.LessOrEqual(t, g.count(":open"), 6)
}

// ownError is an error whose Error method panics for a nil pointer.
type ownError struct{ text string }

func (e *ownError) Error() string { return e.text }

// An error whose methods panic must not prevent the report of an effect.
func TestHandler_ErrorWhoseTextPanics(t *testing.T) {
	for name, odd := range map[string]error{
		"refused for no reason": effect.Refused(nil), "not done for no reason": effect.NotDone(nil), "a nil pointer": (*ownError)(nil),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newFixture(t).connect().Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{}, odd
			})
			require.Error(t, err)
			require.NotEmpty(t, err.Error())
		})
	}
}
