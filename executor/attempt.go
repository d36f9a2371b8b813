package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
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

// act performs the effect of an open attempt and reports it.
func (ex *Executor) act(t *trip, reply flight.Reply) (step, effect.Result, error) {
	if ex.cfg.Events.Opened != nil {
		ex.cfg.Events.Opened(t.call.Key, reply.Token.Number)
	}
	input, err := ex.input(&t.call.Submission, reply.Flight)
	// 6. Trust, once more, as late as can be. An attempt that may not start says so, and leaves no doubt.
	if err != nil || t.right.Trust() <= 0 || ex.service.Err() != nil {
		return ex.turnBack(t, reply, err)
	}
	t.setbacks = 0
	t.start()
	ex.cfg.Crash(beforeSend)
	// From here on the effect may have happened. If the process dies before the report is committed or spooled, the
	// recovery policy decides what becomes of that. A handler may end this goroutine: then another one goes on from here.
	return ex.conclude(t, reply, ex.perform(t, reply, input))
}

// conclude reports an attempt whose handler has ended.
func (ex *Executor) conclude(t *trip, reply flight.Reply, end caller.Ending) (step, effect.Result, error) {
	defer t.stop()
	ex.cfg.Crash(beforeReport)
	// 7. The outcome is on its way into the ledger, and survives this process if it can be written anywhere at all.
	return ex.land(t, reply, end)
}

// turnBack ends an attempt of which nothing was sent, before anything else happens to the key: a claim that is newer
// than that of an open attempt would turn it into a doubt.
func (ex *Executor) turnBack(t *trip, reply flight.Reply, inputErr error) (step, effect.Result, error) {
	right := t.right
	t.right = nil
	switch err := ex.abandon(reply, right, "the right to start was lost before the effect was sent"); {
	case inputErr != nil:
		return landed, effect.Result{}, &effect.Unavailable{Code: "no_leader", Cause: inputErr}
	case err != nil:
		return landed, effect.Result{}, ex.unavailable(t.call.Key, err)
	case ex.service.Err() != nil:
		return landed, effect.Result{}, effect.ErrClosed
	}
	return claimAnew, effect.Result{}, ex.setBack(t, errUntrusted)
}

// perform runs the handler under the attempt's own context. A handler that hangs beyond its time-out is taken to be
// of unknown outcome; what it reports later counts as long as nothing newer was opened.
func (ex *Executor) perform(t *trip, reply flight.Reply, input flight.Blob) caller.Ending {
	f := reply.Flight
	s := ex.span(t, f)
	at := effect.NewAttempt(effect.Spec{
		Key: f.Key, Number: reply.Token.Number, Input: input, Recovery: f.Policy.Recovery, Previous: previous(f), Context: s.ctx,
		IdempotencyKey: ex.idempotencyKey(f), FencingToken: ex.seal(f, reply.Token),
		LeaseLost: lost(t.right), MayStart: mayStart(s.ctx, t.right),
	})
	if f.Policy.AttemptTimeout <= 0 {
		return ex.performHere(t, reply, s, at)
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
func (ex *Executor) performHere(t *trip, reply flight.Reply, s *span, at *effect.Attempt) (end caller.Ending) {
	here := false
	defer func() {
		s.stop()
		if !here {
			t.left = &legacy{opened: reply, end: end}
		}
	}()
	ex.handle(s.ctx, at, t.handler, &end)
	here = true
	return end
}

// legacy is what a trip's goroutine leaves to the next one when the handler ends it.
type legacy struct {
	opened flight.Reply
	end    caller.Ending
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
	s, right := &span{own: lazyContext{parent: effect.WithTraceparent(ex.life, t.trace)}}, t.right
	s.ctx = &s.own
	if d := f.Policy.AttemptTimeout; d > 0 {
		s.ctx, s.untime = context.WithTimeout(s.ctx, d)
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
