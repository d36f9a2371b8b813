package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// Completion is how an attempt ended.
type Completion struct {
	Outcome    flight.Outcome
	Answer     effect.Answer // the receipt; zero if Outcome has no receipt. The runner owns the bytes
	Err        error
	NotStarted bool // the handler was not called: nothing was sent, nor will be
	Suspended  bool // the handler has handed the attempt over to its callback: nothing is reported
	Late       bool // the handler returned after it was reported as hung
	Overran    bool // the handler returned after the time-out of its attempt
}

// ErrorText returns the error text of the report. The report of a handler that has overrun its time-out begins with that, whatever
// its outcome is, so that the history of the flight shows it.
func (c *Completion) ErrorText() string {
	const overran = "time-out: the handler took longer than its attempt may"
	switch {
	case c.Err == nil && c.Overran:
		return overran
	case c.Err == nil:
		return ""
	case c.Overran && !strings.HasPrefix(c.Err.Error(), "time-out: "): // as exec writes it about its command
		return overran + ": " + c.Err.Error()
	}
	return c.Err.Error()
}

var (
	errHung   = errors.New("the handler did not return after its time-out")
	errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit) instead of returning")
)

// runHandler runs the handler on its own goroutine under the attempt's own context. If the handler hangs beyond its
// time-out, runHandler returns an unknown outcome; late then receives the handler's end, which counts unless a newer
// attempt was opened.
//
// Close waits for the goroutine, which counts as Work.
func (r *Runner) runHandler(c *call, a *Answer, h effect.Handler) (end Completion, late <-chan Completion) {
	base := c.baseCtx
	if a.Spec.Traceparent != "" {
		base = effect.WithTraceparent(base, a.Spec.Traceparent)
	}
	ctx, cancel := context.WithCancelCause(base)
	r.calls.mu.Lock()
	c.cancelHandler = cancel
	r.calls.mu.Unlock()
	if r.BaseContext.Err() != nil { // Close may have cancelled all handlers before this one was registered
		cancel(effect.ErrClosed)
	}
	stopLease, stopTime := func() bool { return true }, func() {}
	if a.Policy.Recovery == flight.RecoveryVerify { // a look-up needs a bound on when the effect may still happen
		stopLease = context.AfterFunc(a.Attempt.Context(), func() { cancel(effect.ErrLeaseLost) })
	}
	if d := a.Policy.AttemptTimeout; d > 0 {
		ctx, stopTime = context.WithDeadline(ctx, a.SentAt.Time.Add(d)) // the ledger counts from the Open, too
	}
	a.Spec.Context = ctx
	a.Spec.LeaseLost = func() <-chan struct{} { return a.Attempt.Context().Done() }
	if w := a.Policy.ProviderWindow; w > 0 && a.Policy.Recovery == flight.RecoveryResend { // with the margins of flight.ResendUntil
		a.Spec.Window = max(1, w-w/20-a.Policy.AttemptTimeout)
	}
	a.Spec.MayStart = func() error { return mayStart(a.Spec.Context, a) }
	unwatch := a.Attempt.Watch(ctx, cancel)
	done := make(chan Completion, 1)
	r.Work.EnterNested() // never false: the call is counted
	r.spawn(func() {
		var end Completion
		defer func() { // also when the handler ends this goroutine
			end.Overran = a.Policy.AttemptTimeout > 0 && a.SentAt.Add(a.Policy.AttemptTimeout).Remaining() <= 0
			cancel(context.Canceled)
			stopTime()
			stopLease()
			unwatch()
			done <- end
			r.Work.Leave()
		}()
		callHandler(&a.Spec, h, &end)
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
	return Completion{Outcome: flight.OutcomeUnknown, Err: errHung}, done
}

// callHandler calls the handler and stores in end how the handler ended. A panic, or the end of the goroutine, is an
// error like any other: the effect may have happened. After the end of the goroutine callHandler does not return.
func callHandler(spec *effect.Spec, h effect.Handler, end *Completion) {
	at := effect.NewAttempt(*spec)
	end.Err = errGoexit
	defer func() {
		if p := recover(); p != nil {
			end.Err = fmt.Errorf("the handler panicked: %v", p)
		}
		end.Outcome, end.Suspended = effect.Classify(end.Err, at), at.IsSuspended(end.Err)
		switch {
		case !end.Outcome.Final():
			end.Answer = effect.Answer{}
		case end.Outcome == flight.OutcomeRefused && len(end.Answer.Body) == 0 && end.Err != nil:
			end.Answer.ContentType, end.Answer.Body = "text/plain; charset=utf-8", []byte(end.Err.Error())
		default:
			end.Answer.Body = bytes.Clone(end.Answer.Body) // the handler may change its bytes
		}
	}()
	answer, err := h(spec.Context, at)
	if err != nil { // an error whose methods panic, such as a nil pointer, must panic here and not later
		_, _, _ = err.Error(), errors.Is(err, errGoexit), errors.As(err, new(interface{ isNothing() }))
	}
	end.Answer, end.Err = answer, err
}

// defaultLookUpTimeout bounds a look-up if the flight's policy has no attempt time-out.
const defaultLookUpTimeout = 30 * time.Second

// runLookUp calls the look-up on its own goroutine. It returns FindingNone (the look-up could not find out) after an
// error, a panic, an unknown finding, or when the look-up does not return; the error is the reason. Close waits for the
// goroutine, which counts as Work.
func (r *Runner) runLookUp(c *call, a *Answer) (flight.Finding, effect.Answer, error) {
	type finding struct {
		verb   flight.Finding
		answer effect.Answer
		err    error
	}
	timeout := cmp.Or(a.Policy.AttemptTimeout, defaultLookUpTimeout)
	ctx, cancel := context.WithTimeout(c.baseCtx, timeout)
	stop := context.AfterFunc(r.BaseContext, cancel)
	spec := a.Spec
	spec.Context = ctx
	spec.LeaseLost = func() <-chan struct{} { return a.Attempt.Context().Done() }
	at, found := effect.NewAttempt(spec), make(chan finding, 1)
	r.Work.Go(func() {
		defer cancel()
		defer stop()
		result := finding{err: errors.New("it has ended its goroutine")}
		defer func() { // also when the look-up ends this goroutine
			if p := recover(); p != nil {
				result = finding{err: fmt.Errorf("panic: %v", p)}
			}
			found <- result
		}()
		verb, answer, err := c.req.LookUp(spec.Context, at)
		result.err = err
		switch {
		case err == nil && verb == flight.FindingHappened:
			answer.Body = bytes.Clone(answer.Body) // the look-up may change its bytes, and the finding may be sent again
			result.verb, result.answer = verb, answer
		case err == nil && verb == flight.FindingNotHappened:
			result.verb = verb
		}
	})
	hung := time.NewTimer(timeout + r.hungAfter)
	defer hung.Stop()
	select {
	case result := <-found:
		return result.verb, result.answer, result.err
	case <-hung.C:
		return flight.FindingNone, effect.Answer{}, errors.New("it has not returned in time")
	}
}
