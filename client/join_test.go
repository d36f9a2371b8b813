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
	"github.com/flightd/flightd/httpapi/httpapitest"
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

// A joined caller gets its own copy of the receipt, with the source joined.
func TestJoinersShareNothing(t *testing.T) {
	for name, refusal := range map[string]error{"succeeded": nil, "refused": effect.Refused(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			c := g.connect()
			started, finish := make(chan struct{}), make(chan struct{})
			first := doInBackground(t.Context(), c, call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
				close(started)
				<-finish
				return effect.Answer{Body: []byte("card declined")}, refusal
			})
			<-started
			joined, joins := context.WithCancel(t.Context())
			second := doInBackground(seen{Context: t.Context(), asked: joins}, c, call(`1`), unreachableHandler(t))
			<-joined.Done()
			close(finish)
			ends := map[effect.Source]doResult{effect.SourceExecuted: <-first, effect.SourceJoined: <-second}
			for source, end := range ends {
				require.Equal(t, source, end.result.Source)
				if refusal != nil {
					var declined *effect.Declined
					require.ErrorAs(t, end.err, &declined)
					require.Equal(t, source, declined.Result.Source)
				}
			}
			clear(ends[effect.SourceExecuted].result.Answer.Body)
			require.Equal(t, "card declined", string(ends[effect.SourceJoined].result.Answer.Body))
		})
	}
}

// Each caller gets its own copy of an unrecorded outcome, independent of the handler's buffer.
func TestUnrecorded_IsCopiedPerCaller(t *testing.T) {
	g := newFixture(t)
	c := g.connect(client.WithReportTimeout(50 * time.Millisecond))
	started, finish, body := make(chan struct{}), make(chan struct{}), []byte("paid")
	first := doInBackground(t.Context(), c, call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{Body: body}, nil
	})
	<-started
	joined, joins := context.WithCancel(t.Context())
	second := doInBackground(seen{Context: t.Context(), asked: joins}, c, call(`1`), unreachableHandler(t))
	<-joined.Done()
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/report") {
			return refused
		}
		return none
	})
	close(finish)
	ends := map[effect.Source]*effect.Unrecorded{}
	for source, end := range map[effect.Source]<-chan doResult{effect.SourceExecuted: first, effect.SourceJoined: second} {
		var unrecorded *effect.Unrecorded
		require.ErrorAs(t, (<-end).err, &unrecorded)
		require.Equal(t, source, unrecorded.Result.Source)
		ends[source] = unrecorded
	}
	clear(body)
	require.Equal(t, "paid", string(ends[effect.SourceExecuted].Result.Answer.Body))
	clear(ends[effect.SourceExecuted].Result.Answer.Body)
	require.Equal(t, "paid", string(ends[effect.SourceJoined].Result.Answer.Body))
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

var errLeft = errors.New("the first one left")

// Callers that join around the moment at which the first caller leaves have their own waits.
func TestJoin_AsOtherCallersLeave(t *testing.T) {
	for name, joins := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			g := newFixture(t)
			finish, holder := g.occupied()
			c := g.connect()
			leaving, leave := context.WithCancelCause(t.Context())
			come := func(ctx context.Context) <-chan doResult {
				here, isHere := context.WithCancel(t.Context())
				waits := doInBackground(seen{Context: ctx, asked: isHere}, c, call(`1`), unreachableHandler(t))
				<-here.Done()
				return waits
			}
			first, second := come(leaving), (<-chan doResult)(nil)
			if joins {
				second = come(t.Context())
			}
			leave(errLeft)
			require.ErrorIs(t, (<-first).err, errLeft)
			if !joins {
				second = come(t.Context())
			}
			close(finish)
			require.NoError(t, (<-second).err, "it waits for as long as it likes")
			require.NoError(t, (<-holder).err)
		})
	}
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

// Each joined caller has its own wait.
func TestJoin_EachJoinerHasItsOwnTimeout(t *testing.T) {
	g := newFixture(t)
	started, finish := make(chan struct{}), make(chan struct{})
	first := doInBackground(t.Context(), g.connect(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(started)
		<-finish
		return effect.Answer{ExternalID: "ch_1"}, nil
	})
	<-started
	c := g.connect()
	hasty := call(`1`)
	hasty.Wait = 300 * time.Millisecond
	asked := make(chan struct{}, 1)
	g.setFault(askedFor(asked))
	second := doInBackground(t.Context(), c, hasty, unreachableHandler(t))
	<-asked
	third := doInBackground(t.Context(), c, call(`1`), unreachableHandler(t))
	var busy *effect.Busy
	require.ErrorAs(t, (<-second).err, &busy)
	close(finish)
	require.NoError(t, (<-first).err)
	end := <-third
	require.NoError(t, end.err, "it waits as long as its context lives")
	require.Equal(t, "ch_1", end.result.Answer.ExternalID)
}

// A handler that calls Do with its own key would wait for itself, and gets an error at once. Another key is allowed.
func TestAHandlerThatAsksForItsOwnKey(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	var inner, elsewhere error
	_, err := c.Do(t.Context(), call(`1`), func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
		_, inner = c.Do(ctx, call(`1`), unreachableHandler(t))
		other := call(`1`)
		other.Key = flight.MustKey("default/charge/other")
		_, elsewhere = c.Do(ctx, other, succeedingHandler(`1`))
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
	require.NoError(t, elsewhere)
	var invalid *flight.InvalidError
	require.ErrorAs(t, inner, &invalid)
	require.Equal(t, "key", invalid.Field)
	require.Contains(t, invalid.Detail, "default/charge/order-42")
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

// A caller with a look-up uses it, even after it joined a caller without one.
func TestJoin_JoinerRunsItsOwnLookUp(t *testing.T) {
	for _, warm := range []bool{false, true} {
		g := newFixture(t)
		c := g.connect()
		if warm { // else the leader looks under a session of its own
			g.useSession(c)
		}
		wire := client.OpenRequest{Fingerprint: call(`1`).Submission.Fingerprint.String(), Input: []byte(`1`)}
		wire.Recovery, wire.SettleMS = "verify", 1
		a, err := c.Open(t.Context(), key, wire)
		require.NoError(t, err)
		_, err = c.Report(t.Context(), key, client.ReportRequest{FencingToken: a.FencingToken, Outcome: "unknown"})
		require.NoError(t, err)

		come, both := make(chan struct{}, 1), make(chan struct{})
		g.fake.SetFaults(func(l *httpapitest.Faults) {
			l.Before = func(_ context.Context, method string) error {
				if method == "Open" {
					select {
					case come <- struct{}{}:
						<-both
					default:
					}
				}
				return nil
			}
		})
		leads := doInBackground(t.Context(), c, call(`1`), unreachableHandler(t))
		<-come
		come <- struct{}{} // no other call waits there
		looks := call(`1`)
		looks.LookUp = func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
			return flight.FindingHappened, effect.Answer{ExternalID: "ch_1"}, nil
		}
		joined, joins := context.WithCancel(t.Context())
		joiner := doInBackground(seen{Context: t.Context(), asked: joins}, c, looks, unreachableHandler(t))
		<-joined.Done()
		close(both)
		var doubt *effect.InDoubt
		require.ErrorAs(t, receive(t, leads).err, &doubt)
		end := receive(t, joiner)
		require.NoError(t, end.err)
		require.Equal(t, "ch_1", end.result.Answer.ExternalID)
	}
}
