package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/caller"
	"github.com/flightd/flightd/internal/wire"
)

// errCancelled is the cause of an attempt's context when somebody asked for the flight's cancellation.
var errCancelled = errors.New("somebody asked for its cancellation")

// act performs the effect of the attempt that was opened, and reports it.
//
// If the process dies before the handler starts, nothing happened; from its first byte to the answer to the report, the
// recovery policy decides; after that the receipt stands.
func (l *leg) act(a OpenAnswer) (again bool, result effect.Result, err error) {
	policy := effectivePolicy(&l.trip.call, a)
	if err := l.mayStart(l.client.ending, policy); err != nil {
		return l.decline(err)
	}
	ctx, cancel, stop := l.attemptContext(policy)
	l.o.update(func() { l.o.phase, l.o.number, l.o.cancel = phaseHeld, a.Attempt, cancel })
	end, late := l.perform(ctx, stop, a, policy)
	if late != nil {
		l.reportLate(a, late)
	}
	return l.land(a, end, late == nil)
}

// mostLate is how many attempts in a row may be opened too late to be started, before the caller is told.
const mostLate = 3

// decline abandons an attempt that nothing may be started in any more.
func (l *leg) decline(why error) (again bool, result effect.Result, err error) {
	l.client.abandon(l.trip.values, l.o)
	switch {
	case l.client.ending.Err() != nil:
		return false, effect.Result{}, effect.ErrClosed
	case errors.Is(why, effect.ErrLeaseLost):
		l.o.session.lose()
	default:
		if l.trip.late++; l.trip.late == mostLate {
			return false, effect.Result{}, &effect.Unsettled{Key: l.trip.call.Key, Outcome: flight.NotDone, Err: why}
		}
	}
	return l.trip.interest.Err() == nil, effect.Result{}, why
}

// attemptContext is the attempt's context: it ends by time-out, by a cancel, by Close, and by loss of the lease only
// under verify, whose look-up needs a bound on when the effect may still happen.
func (l *leg) attemptContext(policy flight.Policy) (ctx context.Context, cancel context.CancelCauseFunc, stop func()) {
	ctx, cancel = context.WithCancelCause(l.trip.values)
	life := context.AfterFunc(l.client.life, func() { cancel(effect.ErrClosed) })
	lease := func() bool { return false }
	if policy.Recovery == flight.Verify {
		lease = context.AfterFunc(l.o.session.dying, func() { cancel(effect.ErrLeaseLost) })
	}
	timed := context.CancelFunc(func() {})
	if d := policy.AttemptTimeout; d > 0 {
		ctx, timed = context.WithTimeout(ctx, d)
	}
	return caller.Mark(ctx, l.client, l.trip.call.Key), cancel, func() {
		life()
		lease()
		timed()
		cancel(context.Canceled)
	}
}

// perform runs the handler. One that hangs beyond its time-out is taken to be of unknown outcome; late then gives its
// end, which counts as long as nothing newer was opened.
func (l *leg) perform(ctx context.Context, stop func(), a OpenAnswer, policy flight.Policy) (end caller.Ending, late <-chan caller.Ending) {
	spec := l.spec(a, policy)
	spec.Context, spec.MayStart = ctx, func() error { return l.mayStart(ctx, policy) }
	at := effect.NewAttempt(spec)
	done := make(chan caller.Ending, 1)
	go func() { // reportLate waits for it where nobody else does
		var end caller.Ending
		defer func() { done <- end }() // also when the handler ends this goroutine
		defer stop()
		caller.Perform(ctx, at, l.handler, &end)
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
		return caller.Ending{Outcome: flight.Unknown, Err: errors.New("the handler did not return after its time-out")}, done
	}
}

// mayStart is asked right before an effect leaves. The session that the attempt names must be trusted, and the attempt's
// time-out, counted from when its open was first sent, must not have passed. An attempt whose context has ended starts
// nothing, whatever its handler still does: another attempt may be open.
func (l *leg) mayStart(ctx context.Context, policy flight.Policy) error {
	err := context.Cause(ctx)
	if timeout := policy.AttemptTimeout; err == nil && timeout > 0 && l.o.startable(timeout) <= 0 {
		err = context.DeadlineExceeded
	}
	if err != nil {
		return fmt.Errorf("the effect must not be started: %w", err)
	}
	return l.o.session.mayStart()
}

// spec is what the attempt carries.
func (l *leg) spec(a OpenAnswer, policy flight.Policy) effect.Spec {
	return effect.Spec{
		Key: l.trip.call.Key, Number: a.Attempt, IdempotencyKey: a.IdempotencyKey, FencingToken: a.FencingToken,
		Input: l.input(a), Recovery: policy.Recovery, Previous: previous(a.Previous),
		LeaseLost: l.o.session.dying.Done,
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

// reportLate reports a hung handler once it returns after all.
func (l *leg) reportLate(a OpenAnswer, late <-chan caller.Ending) {
	c, key, values := l.client, l.trip.call.Key, l.trip.values
	c.work.Go(func() { // the trip itself is counted, so that this one may be
		_, _, _ = c.record(values, a.Deployment, key, reportOf(a, <-late), &effect.Result{})
	})
}

// land reports how the effect ended, and does what the ledger makes of it.
func (l *leg) land(a OpenAnswer, end caller.Ending, returned bool) (again bool, result effect.Result, err error) {
	key := l.trip.call.Key
	provisional := effect.Result{
		Key: key, FlightID: key.FlightID(), Outcome: end.Outcome, Source: effect.Executed, Attempt: a.Attempt,
		Answer: end.Answer, Size: len(end.Answer.Body),
	}
	report := reportOf(a, end)
	f, waits, err := l.client.record(l.trip.values, a.Deployment, key, report, &provisional)
	if waits != "" {
		l.o.outlast(waits)
		return false, effect.Result{}, err
	}
	l.o.acknowledge(&report)
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
	return false, effect.Result{}, &effect.Unsettled{Key: key, Outcome: end.Outcome, Err: end.Err}
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
func reportOf(a OpenAnswer, end caller.Ending) ReportRequest {
	r := ReportRequest{FencingToken: a.FencingToken, Outcome: end.Outcome.String()}
	if end.Err != nil {
		r.Error = flight.Text(end.Err.Error())
	}
	if !end.Outcome.Final() {
		return r
	}
	answer := end.Answer
	if end.Outcome == flight.Refused && len(answer.Body) == 0 && end.Err != nil {
		answer.ContentType, answer.Body = "text/plain; charset=utf-8", []byte(end.Err.Error())
	}
	r.Body = wire.BodyOf(flight.Text(answer.ExternalID), answer.ContentType, answer.Body)
	return r
}
