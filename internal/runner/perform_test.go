package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

var key = flight.MustKey("default/charge/order-42")

// brokenError is an error whose Error panics for a nil pointer, and whose Unwrap always panics.
type odd struct{ text string }

func (e *odd) Error() string { return e.text }
func (e *odd) Unwrap() error { panic("Unwrap panicked") }

// effectMarks are the calls that a handler may make before it ends.
var marks = map[string]func(*effect.Attempt){
	"nothing noted": func(*effect.Attempt) {},
	"watched":       (*effect.Attempt).Watch,
	"sent":          func(at *effect.Attempt) { _ = at.Sending() },
}

// handlerEndings lists how a handler can end, and the outcome by the marks before.
var endings = map[string]struct {
	end  func() error
	want map[string]flight.Outcome // by mark; a missing mark has the outcome
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
	"its goroutine ended": {end: func() error { runtime.Goexit(); return nil }, want: watchedIsNotDone, all: flight.Unknown, said: errGone.Error()},
	"a nil pointer":       {end: func() error { return (*odd)(nil) }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: runtime error: invalid memory address or nil pointer dereference"},
	"a panic inside":      {end: func() error { return &odd{"cut"} }, want: watchedIsNotDone, all: flight.Unknown, said: "the handler panicked: Unwrap panicked"},
	"refused over a panic": {end: func() error { return effect.Refused(&odd{"cut"}) }, want: watchedIsNotDone, all: flight.Unknown,
		said: "the handler panicked: Unwrap panicked"},
}

// watchedOutcome: a watched attempt without a recorded start has sent nothing.
var watchedIsNotDone = map[string]flight.Outcome{"watched": flight.NotDone}

func TestHandle(t *testing.T) {
	for how, row := range endings {
		for marked, mark := range marks {
			t.Run(how+", "+marked, func(t *testing.T) {
				var at *effect.Attempt
				end, returned, done := End{Outcome: 99}, false, make(chan struct{})
				go func() { // the handler may end this goroutine
					defer close(done)
					handle(&effect.Spec{Key: key, Context: t.Context()}, func(_ context.Context, its *effect.Attempt) (effect.Answer, error) {
						at = its
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
				if want == flight.Refused {
					require.Equal(t, row.said, string(end.Answer.Body), "a refusal without a body has its error as one")
				}
				require.Equal(t, !errors.Is(end.Err, errGone), returned, "callHandler does not return after Goexit")
				require.Error(t, at.Sending(), "nothing more may be sent")
			})
		}
	}
}

// A rejected send says nothing about earlier sends.
func TestHandleOfWhatWasKeptBack(t *testing.T) {
	for _, before := range []bool{false, true} {
		mayStart := error(nil)
		var end End
		spec := effect.Spec{Key: key, Context: t.Context(), MayStart: func() error { return mayStart }}
		handle(&spec, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
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
