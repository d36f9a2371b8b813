package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// End is how an attempt ended.
type End struct {
	Outcome    flight.Outcome
	Answer     effect.Answer // the receipt; nothing where Outcome leaves none. The bytes belong to the runner
	Err        error
	NotStarted bool // the handler was not called: nothing was sent, nor will be
	Late       bool // of a handler that was taken for hung before
}

var (
	errHung = errors.New("the handler did not return after its time-out")
	errGone = errors.New("the handler ended its goroutine instead of returning")
)

// perform runs the handler under the attempt's own context, on a goroutine of its own. A handler that hangs beyond its time-out
// is taken to be of unknown outcome; late then gives its end, which counts as long as nothing newer was opened.
func (r *Runner) perform(c *call, a *Answer, h effect.Handler) (end End, late <-chan End) {
	ctx, cancel := context.WithCancelCause(c.values)
	r.calls.mu.Lock()
	c.abort = cancel
	r.calls.mu.Unlock()
	if r.Life.Err() != nil { // Close may have ended all handlers before this one was among them
		cancel(effect.ErrClosed)
	}
	stopLease, stopTime := func() bool { return true }, func() {}
	if a.Policy.Recovery == flight.Verify { // its look-up needs a bound on when the effect may still happen
		stopLease = context.AfterFunc(a.Attempt.Context(), func() { cancel(effect.ErrLeaseLost) })
	}
	if d := a.Policy.AttemptTimeout; d > 0 {
		ctx, stopTime = context.WithDeadline(ctx, a.Sent.Time.Add(d)) // the ledger counts from the Open, too
	}
	a.Spec.Context = ctx
	a.Spec.LeaseLost = func() <-chan struct{} { return a.Attempt.Context().Done() }
	if w := a.Policy.ProviderWindow; w > 0 && a.Policy.Recovery == flight.Resend { // with the care of flight.ResendUntil
		a.Spec.Window = max(1, w-w/20-a.Policy.AttemptTimeout)
	}
	a.Spec.MayStart = func() error { return mayStart(a.Spec.Context, a) }
	unwatch := a.Attempt.Watch(ctx, cancel)
	done := make(chan End, 1)
	r.Work.Join() // the call is inside, so this is let in
	r.spawn(func() {
		var end End
		defer func() { // also when the handler ends this goroutine
			cancel(context.Canceled)
			stopTime()
			stopLease()
			unwatch()
			done <- end
			r.Work.Leave()
		}()
		handle(&a.Spec, h, &end)
	})
	var hung <-chan time.Time
	if a.Policy.AttemptTimeout > 0 {
		timer := time.NewTimer(a.Policy.AttemptTimeout + r.hungAfter)
		defer timer.Stop()
		hung = timer.C
	}
	select {
	case end := <-done:
		return end, nil
	case <-hung:
	}
	return End{Outcome: flight.Unknown, Err: errHung}, done
}

// handle calls the handler and notes how it ended. A panic in it is an error like any other: the effect may have happened. So is
// the end of the goroutine, after which handle does not return.
func handle(spec *effect.Spec, h effect.Handler, end *End) {
	at := effect.NewAttempt(*spec)
	end.Err = errGone
	defer func() {
		if p := recover(); p != nil {
			end.Err = fmt.Errorf("the handler panicked: %v", p)
		}
		end.Outcome = effect.Classify(end.Err, at)
		switch {
		case !end.Outcome.Final():
			end.Answer = effect.Answer{}
		case end.Outcome == flight.Refused && len(end.Answer.Body) == 0 && end.Err != nil:
			end.Answer.ContentType, end.Answer.Body = "text/plain; charset=utf-8", []byte(end.Err.Error())
		default:
			end.Answer.Body = bytes.Clone(end.Answer.Body) // the bytes are the handler's, which may change them
		}
	}()
	answer, err := h(spec.Context, at)
	if err != nil { // an error whose methods panic, such as a nil pointer, panics here and not later
		var nothing interface{ isNothing() }
		_, _, _ = err.Error(), errors.Is(err, errGone), errors.As(err, &nothing)
	}
	end.Answer, end.Err = answer, err
}

// lookTimeout bounds a look-up whose flight declares no attempt time-out.
const lookTimeout = 30 * time.Second

// ask calls the look-up, on a goroutine of its own. An error, a panic, an unknown verb, or that it does not return mean NoVerb: it
// could not find out.
func (r *Runner) ask(c *call, a *Answer) (flight.Verb, effect.Answer) {
	type finding struct {
		verb   flight.Verb
		answer effect.Answer
	}
	timeout := cmp.Or(a.Policy.AttemptTimeout, lookTimeout)
	ctx, cancel := context.WithTimeout(c.values, timeout)
	stop := context.AfterFunc(r.Life, cancel)
	spec := a.Spec
	spec.Context = ctx
	spec.LeaseLost = func() <-chan struct{} { return a.Attempt.Context().Done() }
	at, found := effect.NewAttempt(spec), make(chan finding, 1)
	r.Work.Go(func() {
		defer cancel()
		defer stop()
		var it finding
		defer func() { // also when the look-up ends this goroutine
			if recover() != nil {
				it = finding{}
			}
			found <- it
		}()
		switch verb, answer, err := c.in.LookUp(spec.Context, at); {
		case err == nil && verb == flight.Happened:
			answer.Body = bytes.Clone(answer.Body) // the bytes are the look-up's, and the verdict may be sent again
			it = finding{verb, answer}
		case err == nil && verb == flight.DidNotHappen:
			it = finding{verb: verb}
		}
	})
	hung := time.NewTimer(timeout + r.hungAfter)
	defer hung.Stop()
	select {
	case it := <-found:
		return it.verb, it.answer
	case <-hung.C:
		return flight.NoVerb, effect.Answer{}
	}
}
