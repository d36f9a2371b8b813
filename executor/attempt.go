package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/caller"
	"github.com/flightd/flightd/lease"
)

// cancelWatch is how long an attempt runs before anybody looks whether somebody wants it cancelled: short ones are
// over before a person could.
const cancelWatch = 200 * time.Millisecond

var (
	// errCancelled is the cause of an attempt's context when somebody asked for the flight's cancellation.
	errCancelled = errors.New("executor: cancellation was requested")
	errNoStart   = errors.New("executor: the effect must not be started")
	errHung      = errors.New("executor: the handler did not return after its time-out")
)

// act performs the effect of the trip's open attempt and reports it.
func (ex *Executor) act(t *trip) (again bool, result effect.Result, err error) {
	at, f := t.at, t.at.reply.Flight
	if ex.cfg.Events.Opened != nil {
		ex.cfg.Events.Opened(t.call.Key, at.reply.Token.Number)
	}
	input, err := ex.writer.Input(&t.call.Submission, f)
	// 6. Trust, once more, as late as can be. An attempt that may not start says so, and leaves no doubt.
	late := f.Policy.AttemptTimeout > 0 && time.Since(at.sent) >= f.Policy.AttemptTimeout
	if err != nil || late || at.lease.Trust() <= 0 || ex.service.Err() != nil {
		return ex.turnBack(t, err)
	}
	if ex.cfg.Events.Claimed != nil {
		ex.cfg.Events.Claimed(t.call.Key, time.Since(t.wanted))
		t.wanted = time.Time{}
	}
	t.setbacks = 0
	t.flying.Store(true)
	ex.cfg.Crash(beforeSend)
	// From here on the effect may have happened. If the process dies before the report is committed or spooled, the
	// recovery policy decides what becomes of that. A handler may end this goroutine: then another one goes on from here.
	return ex.conclude(t, ex.perform(t, input))
}

// conclude reports an attempt whose handler has ended.
func (ex *Executor) conclude(t *trip, end caller.Ending) (again bool, result effect.Result, err error) {
	ex.cfg.Crash(beforeReport)
	// 7. The outcome is on its way into the ledger, and survives this process if it can be written anywhere at all.
	return ex.land(t, end)
}

// turnBack ends an attempt of which nothing was sent.
func (ex *Executor) turnBack(t *trip, inputErr error) (again bool, result effect.Result, err error) {
	at := t.at
	t.at = nil
	switch err := ex.abandon(at, "the right to start was lost before the effect was sent"); {
	case inputErr != nil:
		return false, effect.Result{}, &effect.Unavailable{Code: "no_leader", Cause: inputErr}
	case err != nil:
		return false, effect.Result{}, answer.Unavailable(t.call.Key, err)
	case ex.service.Err() != nil:
		return false, effect.Result{}, effect.ErrClosed
	}
	return true, effect.Result{}, ex.setBack(t, errUntrusted)
}

// perform runs the handler under the attempt's own context. A handler that hangs beyond its time-out is taken to be
// of unknown outcome; what it reports later counts as long as nothing newer was opened.
func (ex *Executor) perform(t *trip, input flight.Blob) caller.Ending {
	reply, f, right := t.at.reply, t.at.reply.Flight, t.at.lease
	s := ex.span(t, f)
	at := effect.NewAttempt(effect.Spec{
		Key: f.Key, Number: reply.Token.Number, Input: input, Recovery: f.Policy.Recovery, Previous: answer.Previous(f), Context: s.ctx,
		IdempotencyKey: ex.writer.IdempotencyKey(f), FencingToken: ex.writer.SealToken(f, f.Newest()),
		LeaseLost: lost(right), MayStart: mayStart(s.ctx, right),
	})
	if f.Policy.AttemptTimeout <= 0 {
		return ex.performHere(t, s, at)
	}
	done := make(chan caller.Ending, 1)
	ex.crew.enterMore() // the trip itself is aboard, so this one is let in
	go func() {
		defer ex.crew.leave()
		var end caller.Ending
		defer func() { done <- end }() // also when the handler ends this goroutine
		defer s.stop()
		ex.handle(s.ctx, at, t.handler, &end)
	}()
	hung := time.NewTimer(f.Policy.AttemptTimeout + ex.cfg.HungAfter)
	defer hung.Stop()
	select {
	case end := <-done:
		return end
	case <-hung.C:
		ex.reportLate(reply, done)
		return caller.Ending{Outcome: flight.Unknown, Err: errHung}
	}
}

// performHere runs the handler on the goroutine that flies the trip. When the handler ends that goroutine, it leaves the
// rest of the trip to another one.
func (ex *Executor) performHere(t *trip, s *span, at *effect.Attempt) (end caller.Ending) {
	here := false
	defer func() {
		s.stop()
		if !here {
			t.left = &end
		}
	}()
	ex.handle(s.ctx, at, t.handler, &end)
	here = true
	return end
}

// mayStart is asked right before an effect leaves. An attempt that is over may start none, whatever its handler still
// does: another one may be open.
func mayStart(ctx context.Context, right lease.Lease) func() error {
	return func() error {
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errNoStart, context.Cause(ctx))
		case right.Trust() <= 0:
			return fmt.Errorf("%w: %w", errNoStart, effect.ErrLeaseLost)
		}
		return nil
	}
}

// handle calls the handler and notes how it ended, also when it does not return.
func (ex *Executor) handle(ctx context.Context, at *effect.Attempt, h effect.Handler, end *caller.Ending) {
	defer ex.cfg.Crash(afterEffect)
	caller.Perform(ctx, at, h, end)
}

// span is the time of an attempt: its context, and what may end it.
type span struct {
	ctx      context.Context
	own      lazyContext
	inside   caller.Inside
	untime   context.CancelFunc
	unlink   func() bool
	watch    *time.Timer
	watching sync.WaitGroup
}

// span starts the attempt's time: it ends by time-out, by a cancel, by Close, and by loss of the lease only under
// verify, whose look-up needs a bound on when the effect may still happen. stop must be called.
func (ex *Executor) span(t *trip, f *flight.Flight) *span {
	s, right := &span{own: lazyContext{parent: effect.WithTraceparent(ex.life, t.trace)}}, t.at.lease
	s.ctx = &s.own
	if d := f.Policy.AttemptTimeout; d > 0 {
		s.ctx, s.untime = context.WithDeadline(s.ctx, t.at.sent.Add(d)) // the ledger counts from the Open, too
	}
	s.inside = caller.Inside{Doer: ex, Key: f.Key, Span: s.ctx}
	s.own.inside = &s.inside
	if f.Policy.Recovery == flight.Verify {
		s.unlink = context.AfterFunc(right.Context(), func() { s.own.end(effect.ErrLeaseLost) })
	}
	s.watching.Add(1)
	s.watch = time.AfterFunc(cancelWatch, func() {
		defer s.watching.Done()
		ex.watchCancel(s, f)
	})
	return s
}

// stop ends the attempt's time.
func (s *span) stop() {
	s.own.end(context.Canceled)
	if s.untime != nil {
		s.untime()
	}
	if s.unlink != nil {
		s.unlink()
	}
	if !s.watch.Stop() {
		s.watching.Wait()
	}
}

// watchCancel cancels the attempt when somebody asks for it. It ends with the attempt's context.
func (ex *Executor) watchCancel(s *span, f *flight.Flight) {
	seen := f.Version
	for {
		now, err := ex.cfg.Ledger.Wait(s.ctx, f.ID, seen)
		if err != nil || now == nil {
			return
		}
		if now.Cancel != nil && now.Generation == f.Generation {
			s.own.end(errCancelled)
			return
		}
		seen = now.Version
	}
}

// lost gives the end of a right to whoever asks for it.
func lost(right lease.Lease) func() <-chan struct{} {
	return func() <-chan struct{} { return right.Context().Done() }
}
