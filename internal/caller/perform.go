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
		_ = err.Error() // one that panics, such as a nil pointer, does so here and not on the way to the ledger
	}
	end.Answer, end.Err = answer, err
}
