package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// errCancelled is the cause of an attempt's context when somebody asked for the flight's cancellation.
var errCancelled = errors.New("somebody asked for its cancellation")

// attempt is one that is open for this client.
type attempt struct {
	key    flight.Key
	cancel context.CancelCauseFunc
}

// ending is how a handler ended.
type ending struct {
	outcome flight.Outcome
	answer  effect.Answer
	err     error
}

// act performs the effect of the attempt that was opened, and reports it.
//
// If the process dies before the handler starts, nothing happened; from its first byte to the answer to the report, the
// recovery policy decides; after that the receipt stands.
func (l *leg) act(a OpenAnswer) (again bool, result effect.Result, err error) {
	if l.session.mayStart() != nil {
		return l.decline(a)
	}
	policy := effectivePolicy(&l.trip.call, a)
	ctx, cancel, stop := l.attemptContext(policy)
	l.session.run(l.nonce, &attempt{key: l.trip.call.Key, cancel: cancel})
	end, late := l.perform(ctx, stop, a, policy)
	if late != nil {
		l.reportLate(a, late)
	}
	return l.land(a, end, late == nil)
}

// decline gives back an attempt whose trust was over before anything was started.
func (l *leg) decline(a OpenAnswer) (again bool, result effect.Result, err error) {
	end := ending{outcome: flight.NotDone, err: errors.New("the right to start was lost before the effect was sent")}
	_, err = l.client.record(l.trip.values, l.trip.call.Key, reportOf(a, end), &effect.Result{})
	l.drop(false)
	l.session.lose()
	var unrecorded *effect.Unrecorded
	if errors.As(err, &unrecorded) {
		return false, effect.Result{}, &effect.Unavailable{Code: "unreachable", Cause: unrecorded.Cause}
	}
	return l.trip.interest.Err() == nil, effect.Result{}, effect.ErrLeaseLost
}

// attemptContext is the attempt's context: it ends by time-out, by a cancel, by Close, and by loss of the lease only
// under verify, whose look-up needs a bound on when the effect may still happen.
func (l *leg) attemptContext(policy flight.Policy) (ctx context.Context, cancel context.CancelCauseFunc, stop func()) {
	ctx, cancel = context.WithCancelCause(l.trip.values)
	life := context.AfterFunc(l.client.life, func() { cancel(effect.ErrClosed) })
	lease := func() bool { return false }
	if policy.Recovery == flight.Verify {
		lease = context.AfterFunc(l.session.dying, func() { cancel(effect.ErrLeaseLost) })
	}
	timed := context.CancelFunc(func() {})
	if d := policy.AttemptTimeout; d > 0 {
		ctx, timed = context.WithTimeout(ctx, d)
	}
	return ctx, cancel, func() {
		life()
		lease()
		timed()
		cancel(context.Canceled)
	}
}

// perform runs the handler. One that hangs beyond its time-out is taken to be of unknown outcome; late then gives its
// end, which counts as long as nothing newer was opened.
func (l *leg) perform(ctx context.Context, stop func(), a OpenAnswer, policy flight.Policy) (end ending, late <-chan ending) {
	spec := l.spec(a, policy)
	spec.Context, spec.MayStart = ctx, mayStart(ctx, l.session)
	at := effect.NewAttempt(spec)
	done := make(chan ending, 1)
	go func() { // reportLate waits for it where nobody else does
		end := ending{outcome: flight.Unknown, err: errGone}
		defer func() { done <- end }() // also when the handler ends this goroutine
		defer stop()
		end = l.handle(ctx, at)
	}()
	var hung <-chan time.Time
	if policy.AttemptTimeout > 0 {
		timer := time.NewTimer(policy.AttemptTimeout + l.client.opts.hungAfter)
		defer timer.Stop()
		hung = timer.C
	}
	select {
	case end := <-done:
		return end, nil
	case <-hung:
		return ending{outcome: flight.Unknown, err: errors.New("the handler did not return after its time-out")}, done
	}
}

// errGone is what a handler says that ended its goroutine instead of returning.
var errGone = errors.New("the handler ended without returning")

// mayStart is asked right before an effect leaves. An attempt whose time is over starts none, whatever its handler still
// does: another one may be open.
func mayStart(ctx context.Context, s *session) func() error {
	return func() error {
		if ctx.Err() != nil {
			return fmt.Errorf("the effect must not be started: %w", context.Cause(ctx))
		}
		return s.mayStart()
	}
}

// spec is what the attempt carries.
func (l *leg) spec(a OpenAnswer, policy flight.Policy) effect.Spec {
	return effect.Spec{
		Key: l.trip.call.Key, Number: a.Attempt, IdempotencyKey: a.IdempotencyKey, FencingToken: a.FencingToken,
		Input: l.input(a), Recovery: policy.Recovery, Previous: previous(a.Previous),
		LeaseLost: l.session.dying.Done,
	}
}

func previous(a *wire.Attempt) *flight.Attempt {
	if a == nil {
		return nil
	}
	outcome, _ := flight.ParseOutcome(a.Outcome) // none while it is open
	p := &flight.Attempt{Number: a.Attempt, Owner: a.Owner, Outcome: outcome, Lost: a.Lost, Error: a.Error}
	if !a.OpenedAt.IsZero() {
		p.OpenedAt = flight.Time(a.OpenedAt.UnixMilli())
	}
	if !a.ClosedAt.IsZero() {
		p.ClosedAt = flight.Time(a.ClosedAt.UnixMilli())
	}
	return p
}

// handle calls the handler. A panic in it is an error like any other: the effect may have happened.
func (l *leg) handle(ctx context.Context, at *effect.Attempt) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = ending{err: fmt.Errorf("the handler panicked: %v", p)}
			end.outcome = effect.Classify(end.err, at)
		}
	}()
	answer, err := l.handler(ctx, at)
	if err != nil {
		_ = err.Error() // one that panics, such as a nil pointer, does so here and not on the way to the ledger
	}
	return ending{outcome: effect.Classify(err, at), answer: answer, err: err}
}

// reportLate reports a hung handler once it returns after all.
func (l *leg) reportLate(a OpenAnswer, late <-chan ending) {
	c, key, values := l.client, l.trip.call.Key, l.trip.values
	if !c.gate.enter(&c.work) {
		return
	}
	go func() {
		defer c.work.Done()
		end := <-late
		_, _ = c.record(values, key, reportOf(a, end), &effect.Result{})
	}()
}

// land reports how the effect ended, and does what the ledger makes of it.
func (l *leg) land(a OpenAnswer, end ending, returned bool) (again bool, result effect.Result, err error) {
	key := l.trip.call.Key
	provisional := effect.Result{
		Key: key, FlightID: key.FlightID(), Outcome: end.outcome, Source: effect.Executed, Attempt: a.Attempt,
		Answer: end.answer, Size: len(end.answer.Body),
	}
	f, err := l.client.record(l.trip.values, key, reportOf(a, end), &provisional)
	l.drop(false)
	switch {
	case isFenced(err):
		result, err = l.afterFence(err)
		return false, result, err
	case err != nil:
		return false, effect.Result{}, err
	case isSettled(f):
		f.Source = effect.Executed.String()
		result, err = resultOf(f)
		return false, result, err
	case f.Looking && returned && l.trip.interest.Err() == nil:
		return true, effect.Result{}, nil
	}
	return false, effect.Result{}, &effect.Unsettled{Key: key, Outcome: end.outcome, Err: end.err}
}

// afterFence gives what was decided without this attempt, where that is final, else that it was fenced.
func (l *leg) afterFence(fenced error) (effect.Result, error) {
	ctx, cancel := context.WithTimeout(l.trip.values, defaultTry)
	defer cancel()
	f, err := l.client.Flight(ctx, l.trip.call.Key.FlightID())
	if err != nil || !isSettled(f) {
		return effect.Result{}, fenced
	}
	f.Source = effect.Replayed.String()
	return resultOf(f)
}

// reportOf is the report of an ending. Too long a body is shortened and marked so; it never makes an attempt fail.
func reportOf(a OpenAnswer, end ending) ReportRequest {
	r := ReportRequest{FencingToken: a.FencingToken, Outcome: end.outcome.String()}
	if end.err != nil {
		r.Error = flight.Text(end.err.Error())
	}
	if !end.outcome.Final() {
		return r
	}
	answer := end.answer
	if end.outcome == flight.Refused && len(answer.Body) == 0 && end.err != nil {
		answer.ContentType, answer.Body = "text/plain; charset=utf-8", []byte(end.err.Error())
	}
	r.Body = wire.BodyOf(flight.Text(answer.ExternalID), answer.ContentType, answer.Body)
	return r
}
