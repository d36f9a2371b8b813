package caller

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// ErrGone is how a handler ended that ended its goroutine instead of returning.
var ErrGone = errors.New("the handler ended its goroutine instead of returning")

// Ending is how a handler ended.
type Ending struct {
	Outcome flight.Outcome
	Answer  effect.Answer
	Err     error
}

// Perform calls the handler and notes how it ended. A panic in it is an error like any other: the effect may have happened.
// So is the end of the goroutine, after which Perform does not return; what was noted stands all the same.
func Perform(ctx context.Context, at *effect.Attempt, h effect.Handler, end *Ending) {
	end.Err = ErrGone
	defer func() {
		if p := recover(); p != nil {
			end.Err = fmt.Errorf("the handler panicked: %v", p)
		}
		end.Outcome = effect.Classify(end.Err, at)
	}()
	answer, err := h(ctx, at)
	if err != nil {
		lookInto(err)
	}
	end.Answer, end.Err = answer, err
}

// lookInto does with an error what is done with it on the way to the ledger. One that panics, such as a nil pointer, does so
// here and not there.
func lookInto(err error) {
	_ = err.Error()
	_ = errors.Is(err, ErrGone)
	var nothing interface{ isNothing() }
	_ = errors.As(err, &nothing)
}
