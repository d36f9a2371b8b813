package caller_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
)

var key = flight.MustKey("default/charge/order-42")

// odd is an error that cannot even be looked at: as a nil pointer, or because it panics when it is unwrapped.
type odd struct{ text string }

func (e *odd) Error() string { return e.text }
func (e *odd) Unwrap() error { panic("nobody looks in here") }

// marks are what a handler may do before it ends.
var marks = map[string]func(*effect.Attempt){
	"nothing noted": func(*effect.Attempt) {},
	"watched":       (*effect.Attempt).Watch,
	"sent":          func(at *effect.Attempt) { _ = at.Sending() },
}

// How a handler ends, and which outcome that is, by what was noted before.
var endings = map[string]struct {
	end  func() error
	want map[string]flight.Outcome // by mark; those that are not there are all
	all  flight.Outcome
	said string
}{
	"a value":                {end: func() error { return nil }, all: flight.Succeeded},
	"refused":                {end: func() error { return fmt.Errorf("pay: %w", effect.Refused(errors.New("declined"))) }, all: flight.Refused, said: "pay: declined"},
	"not done":               {end: func() error { return effect.NotDone(errors.New("no route")) }, all: flight.NotDone, said: "no route"},
	"not done by nil":        {end: func() error { return effect.NotDone(nil) }, all: flight.NotDone, said: "not done"},
	"refused, asked to wait": {end: func() error { return effect.RetryAfter(effect.Refused(errors.New("no")), time.Second) }, all: flight.Refused, said: "no"},
	"a plain error":          {end: func() error { return errors.New("cut") }, want: watchedIsNotDone, all: flight.Unknown, said: "cut"},
	"its time is over": {end: func() error { return context.DeadlineExceeded }, want: watchedIsNotDone, all: flight.Unknown,
		said: "context deadline exceeded"},
	"a panic":             {end: func() error { panic("boom") }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: boom"},
	"a panic with nil":    {end: func() error { panic(nil) }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: panic called with nil argument"},
	"its goroutine ended": {end: func() error { runtime.Goexit(); return nil }, want: watchedIsNotDone, all: flight.Unknown, said: caller.ErrGone.Error()},
	"a nil pointer":       {end: func() error { return (*odd)(nil) }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: runtime error: invalid memory address or nil pointer dereference"},
	"a panic inside":      {end: func() error { return &odd{"cut"} }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: nobody looks in here"},
	"refused over a panic": {end: func() error { return effect.Refused(&odd{"cut"}) }, want: watchedIsNotDone, all: flight.Unknown,
		said: "the handler panicked: nobody looks in here"},
}

// watchedIsNotDone: where something would have noted the effect's start, silence means that nothing left.
var watchedIsNotDone = map[string]flight.Outcome{"watched": flight.NotDone}

func TestPerform(t *testing.T) {
	for how, row := range endings {
		for marked, mark := range marks {
			t.Run(how+", "+marked, func(t *testing.T) {
				at := effect.NewAttempt(effect.Spec{Key: key})
				end, returned := caller.Ending{Outcome: 99}, false
				done := make(chan struct{})
				go func() { // which the handler may end
					defer close(done)
					caller.Perform(t.Context(), at, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
						mark(at)
						return effect.Answer{ExternalID: "ch_1"}, row.end()
					}, &end)
					returned = true
				}()
				<-done
				want, special := row.want[marked]
				if !special {
					want = row.all
				}
				require.Equal(t, want, end.Outcome)
				if row.said == "" {
					require.NoError(t, end.Err)
					require.Equal(t, "ch_1", end.Answer.ExternalID)
				} else {
					require.EqualError(t, end.Err, row.said)
				}
				require.Equal(t, !errors.Is(end.Err, caller.ErrGone), returned, "it does not return where there is no goroutine")
				require.Error(t, at.Sending(), "nothing leaves any more")
			})
		}
	}
}

// What was kept back says nothing of what was sent before.
func TestPerformOfWhatWasKeptBack(t *testing.T) {
	for _, before := range []bool{false, true} {
		mayStart := error(nil)
		at := effect.NewAttempt(effect.Spec{Key: key, MayStart: func() error { return mayStart }})
		var end caller.Ending
		caller.Perform(t.Context(), at, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			if before {
				require.NoError(t, at.Sending())
			}
			mayStart = effect.ErrLeaseLost
			return effect.Answer{}, at.Sending()
		}, &end)
		require.ErrorIs(t, end.Err, effect.ErrLeaseLost)
		require.Equal(t, map[bool]flight.Outcome{false: flight.NotDone, true: flight.Unknown}[before], end.Outcome)
	}
}

// ask runs a look-up in a bubble and gives what it found, and how long that took.
func ask(ctx context.Context, look caller.Look) (verb flight.Verb, answer effect.Answer, took time.Duration) {
	look.Spec.Key = key
	look.Go = func(f func()) { go f() }
	began := time.Now()
	verb, answer = look.Ask(ctx)
	return verb, answer, time.Since(began)
}

func TestAsk(t *testing.T) {
	found := effect.Answer{ExternalID: "ch_1", Body: []byte("paid")}
	for name, row := range map[string]struct {
		up   effect.LookUp
		want flight.Verb
	}{
		"happened":        {says(flight.Happened, found, nil), flight.Happened},
		"did not happen":  {says(flight.DidNotHappen, found, nil), flight.DidNotHappen},
		"cannot know":     {says(flight.NoVerb, found, nil), flight.NoVerb},
		"no verb of ours": {says(flight.Fail, found, nil), flight.NoVerb},
		"an error":        {says(flight.Happened, found, errors.New("no route")), flight.NoVerb},
		"a panic":         {func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) { panic("boom") }, flight.NoVerb},
		"its goroutine ended": {func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) {
			runtime.Goexit()
			return flight.Happened, found, nil
		}, flight.NoVerb},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var its context.Context
				verb, answer, took := ask(t.Context(), caller.Look{Up: func(ctx context.Context, at *effect.Attempt) (flight.Verb, effect.Answer, error) {
					its = ctx
					return row.up(ctx, at)
				}})
				synctest.Wait()
				require.Error(t, its.Err(), "it ends with the look-up")
				require.Equal(t, row.want, verb)
				require.Zero(t, took)
				if verb != flight.Happened {
					require.Equal(t, effect.Answer{}, answer, "there is no receipt of it")
					return
				}
				require.Equal(t, found, answer)
				clear(answer.Body)
				require.Equal(t, "paid", string(found.Body), "the bytes are the look-up's")
			})
		})
	}
}

func says(v flight.Verb, a effect.Answer, err error) effect.LookUp {
	return func(context.Context, *effect.Attempt) (flight.Verb, effect.Answer, error) { return v, a, err }
}

// A look-up has its time, and is believed to return a little later; then it could not find out.
func TestAskHasItsTime(t *testing.T) {
	for name, row := range map[string]struct {
		timeout, parent, late, took time.Duration
		want                        flight.Verb
	}{
		"with its context":     {timeout: time.Minute, took: time.Minute, want: flight.Happened},
		"with its parent":      {timeout: time.Minute, parent: time.Second, took: time.Second, want: flight.Happened},
		"the default":          {took: 30 * time.Second, want: flight.Happened},
		"a little late":        {timeout: time.Minute, late: 9 * time.Second, took: 69 * time.Second, want: flight.Happened},
		"later than is waited": {timeout: time.Minute, late: 11 * time.Second, took: 70 * time.Second, want: flight.NoVerb},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if row.parent > 0 {
					time.AfterFunc(row.parent, cancel)
				}
				verb, _, took := ask(ctx, caller.Look{Timeout: row.timeout, HungAfter: 10 * time.Second,
					Up: func(ctx context.Context, at *effect.Attempt) (flight.Verb, effect.Answer, error) {
						<-ctx.Done()
						<-time.After(row.late)
						return flight.Happened, effect.Answer{}, nil
					}})
				require.Equal(t, row.want, verb)
				require.Equal(t, row.took, took)
				<-time.After(time.Minute) // until it returns after all
			})
		})
	}
}

// Each caller gets what is its own: the source by which it came to it, and the bytes.
func TestShare(t *testing.T) {
	own := func(s effect.Source) effect.Result {
		return effect.Result{Key: key, Source: s, Answer: effect.Answer{Body: []byte("paid")}}
	}
	failed := &effect.Failed{Key: key}
	for name, err := range map[string]error{"a value": nil, "declined": &effect.Declined{Result: own(effect.Executed)},
		"unrecorded": &effect.Unrecorded{Result: own(effect.Executed), Cause: failed}, "another error": failed} {
		for _, was := range []effect.Source{effect.Executed, effect.Replayed} {
			for _, as := range []effect.Source{effect.Executed, effect.Joined} {
				t.Run(fmt.Sprintf("%s, %v for who %v", name, was, as), func(t *testing.T) {
					result := own(was)
					got, gotErr := caller.Share(result, err, as)
					want := was
					if as == effect.Joined && was == effect.Executed {
						want = effect.Joined
					}
					require.Equal(t, want, got.Source)
					bodies := [][]byte{got.Answer.Body}
					switch e := gotErr.(type) {
					case *effect.Declined:
						require.Equal(t, want, e.Result.Source)
					case *effect.Unrecorded:
						require.Equal(t, as, e.Result.Source)
						require.Same(t, failed, e.Cause)
						bodies = append(bodies, e.Result.Answer.Body)
						require.Equal(t, "paid", string(err.(*effect.Unrecorded).Result.Answer.Body))
					default:
						require.Equal(t, err, gotErr)
					}
					for _, body := range bodies {
						require.Equal(t, "paid", string(body))
						clear(body)
					}
					require.Equal(t, "paid", string(result.Answer.Body))
					if e, ok := err.(*effect.Unrecorded); ok {
						require.Equal(t, "paid", string(e.Result.Answer.Body))
					}
				})
			}
		}
	}
}

// Only the handler of this very key, at this very doer, while its attempt lives, would wait for itself.
func TestCheckInside(t *testing.T) {
	span, end := context.WithCancel(t.Context())
	doer, other := new(int), new(int)
	inside, stop := context.WithCancel(caller.Mark(span, doer, key))
	defer stop()
	var invalid *flight.InvalidError
	require.ErrorAs(t, caller.CheckInside(inside, doer, key), &invalid)
	require.NoError(t, caller.CheckInside(inside, other, key))
	require.NoError(t, caller.CheckInside(inside, doer, flight.MustKey("default/charge/order-43")))
	require.NoError(t, caller.CheckInside(span, doer, key))
	require.NoError(t, caller.CheckInside(caller.Mark(inside, doer, flight.MustKey("default/charge/order-43")), doer, key), "it need not wait for that")
	end()
	require.NoError(t, caller.CheckInside(context.WithoutCancel(inside), doer, key))
}

// A doubt is a joiner's, too, unless nobody could look and the joiner can.
func TestMayLook(t *testing.T) {
	look := says(flight.Happened, effect.Answer{}, nil)
	nobody := fmt.Errorf("joined: %w", &effect.InDoubt{Key: key, Cause: caller.NoLookUp})
	require.True(t, caller.MayLook(nobody, nil, look))
	require.False(t, caller.MayLook(nobody, nil, nil))
	require.False(t, caller.MayLook(nobody, look, look), "it was asked, and would be again")
	require.False(t, caller.MayLook(&effect.InDoubt{Key: key, Cause: "its recovery is hold"}, nil, look))
	require.False(t, caller.MayLook(nil, nil, look))
}
