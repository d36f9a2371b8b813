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
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }
func (e *brokenError) Unwrap() error { panic("Unwrap panicked") }

// effectMarks are the calls that a handler may make before it ends.
var effectMarks = map[string]func(*effect.Attempt){
	"nothing noted": func(*effect.Attempt) {},
	"watched":       (*effect.Attempt).Watch,
	"sent":          func(at *effect.Attempt) { _ = at.Sending() },
}

// handlerEndings lists how a handler can end, and the outcome by the marks before.
var handlerEndings = map[string]struct {
	end  func() error
	want map[string]flight.Outcome // by mark; a missing mark has the outcome
	all  flight.Outcome
	said string
}{
	"a value":                {end: func() error { return nil }, all: flight.OutcomeSucceeded},
	"refused":                {end: func() error { return fmt.Errorf("pay: %w", effect.Refused(errors.New("declined"))) }, all: flight.OutcomeRefused, said: "pay: declined"},
	"not done":               {end: func() error { return effect.NotDone(errors.New("no route")) }, all: flight.OutcomeNotDone, said: "no route"},
	"not done by nil":        {end: func() error { return effect.NotDone(nil) }, all: flight.OutcomeNotDone, said: "not done"},
	"refused by nil":         {end: func() error { return effect.Refused(nil) }, all: flight.OutcomeRefused, said: "refused"},
	"refused, asked to wait": {end: func() error { return effect.RetryAfter(effect.Refused(errors.New("no")), time.Second) }, all: flight.OutcomeRefused, said: "no"},
	"a plain error":          {end: func() error { return errors.New("cut") }, want: watchedOutcome, all: flight.OutcomeUnknown, said: "cut"},
	"its time is over": {end: func() error { return context.DeadlineExceeded }, want: watchedOutcome, all: flight.OutcomeUnknown,
		said: "context deadline exceeded"},
	"a panic":             {end: func() error { panic("boom") }, want: watchedOutcome, all: flight.OutcomeUnknown, said: "the handler panicked: boom"},
	"a panic with nil":    {end: func() error { panic(nil) }, want: watchedOutcome, all: flight.OutcomeUnknown, said: "the handler panicked: panic called with nil argument"},
	"its goroutine ended": {end: func() error { runtime.Goexit(); return nil }, want: watchedOutcome, all: flight.OutcomeUnknown, said: errGoexit.Error()},
	"a nil pointer":       {end: func() error { return (*brokenError)(nil) }, want: watchedOutcome, all: flight.OutcomeUnknown, said: "the handler panicked: runtime error: invalid memory address or nil pointer dereference"},
	"a panic inside":      {end: func() error { return &brokenError{"cut"} }, want: watchedOutcome, all: flight.OutcomeUnknown, said: "the handler panicked: Unwrap panicked"},
	"refused over a panic": {end: func() error { return effect.Refused(&brokenError{"cut"}) }, want: watchedOutcome, all: flight.OutcomeUnknown,
		said: "the handler panicked: Unwrap panicked"},
}

// watchedOutcome: a watched attempt without a recorded start has sent nothing.
var watchedOutcome = map[string]flight.Outcome{"watched": flight.OutcomeNotDone}

func TestCallHandler(t *testing.T) {
	for how, row := range handlerEndings {
		for marked, mark := range effectMarks {
			t.Run(how+", "+marked, func(t *testing.T) {
				var at *effect.Attempt
				end, returned, done := Completion{Outcome: 99}, false, make(chan struct{})
				go func() { // the handler may end this goroutine
					defer close(done)
					callHandler(&effect.Spec{Key: key, Context: t.Context()}, func(_ context.Context, its *effect.Attempt) (effect.Answer, error) {
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
				if want == flight.OutcomeRefused {
					require.Equal(t, row.said, string(end.Answer.Body), "a refusal without a body has its error as one")
				}
				require.Equal(t, !errors.Is(end.Err, errGoexit), returned, "callHandler does not return after Goexit")
				require.Error(t, at.Sending(), "nothing more may be sent")
			})
		}
	}
}
