package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/gate"
)

// Transport asks for the right to act.
type Transport interface {
	// Open asks for an attempt under a nonce of its own. It waits for the attempts of others until the given time (zero:
	// without end), and as long as ctx lives. When ctx ends before an attempt was opened, or it is not known whether one
	// was, Open has the attempt abandoned. Errors are final for the call. If the process dies, an attempt that was opened
	// ends with its session.
	Open(ctx context.Context, call *effect.Call, until time.Time) (Answer, error)
	// Renew makes sure that the next Open is under a session that can be trusted, or finds out why not.
	Renew(ctx context.Context) error
}

// Attempt is the result of an Open: an open attempt, or the right to look up what the attempt before it has done.
type Attempt interface {
	// Report sends the end of the attempt to the ledger, and returns what follows from the ledger's answer. Where
	// End.NotStarted is set, the handler was not called and never will be. *effect.Unrecorded: the report is not in the
	// ledger yet, and is sent again.
	Report(ctx context.Context, end End) (Answer, error)
	// Verify sends what a look-up found out. It is answered like Open.
	Verify(ctx context.Context, verb flight.Verb, found effect.Answer) (Answer, error)
	// Trust is what is left of the time in which the session allows an effect to start.
	Trust() time.Duration
	// Context ends when trust does.
	Context() context.Context
	// Watch is called right before the handler. When somebody asks for the flight's cancellation, it calls cancel, until stop
	// is called.
	Watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func())
}

// Decision says what is to be done about a call.
type Decision uint8

const (
	// Done: the Result, or the error beside it, is what the callers get.
	Done Decision = iota
	// Again: nothing is decided, and another Open may help.
	Again
	// Proceed: act, then report.
	Proceed
	// Look: ask the provider what happened, then verify.
	Look
	// Unsettled: the attempt has ended, the flight has not, and nothing is to be tried again unasked.
	Unsettled
)

// Answer is the result of Open, Report and Verify.
type Answer struct {
	Decision   Decision
	Result     effect.Result // with Done
	Setback    error         // with Again: why the Open gave nothing to do. nil: an attempt has ended, and the next may begin
	Generation uint32        // of the flight; 0: not known
	// With Proceed and Look.
	Attempt Attempt
	Spec    effect.Spec   // without its contexts and MayStart
	Policy  flight.Policy // of the flight, which is the first caller's
	Sent    clock.Moment  // when the Open was first sent: the attempt's time-out counts from here
	Resend  clock.Moment  // the end of the time in which the provider surely knows the key; zero: there is no such bound
}

// Runner runs effects once. Its methods may be called at once from many goroutines.
type Runner struct {
	transport Transport
	hungAfter time.Duration
	calls     calls
	// Work counts calls, handlers and what transports do in the background. Close waits for it.
	Work gate.Gate
	// Life ends when Close has lost its patience, Draining when Close begins.
	Life, Draining context.Context
	kill, drain    context.CancelCauseFunc
	idle           chan func() // unbuffered: taken by a goroutine that waits for work, or by none
	waiting        atomic.Int32
}

// New makes a runner. A handler that has not returned hungAfter after the end of its time-out is taken to hang, and its outcome
// to be unknown.
func New(t Transport, hungAfter time.Duration) *Runner {
	r := &Runner{transport: t, hungAfter: hungAfter, idle: make(chan func())}
	r.Life, r.kill = context.WithCancelCause(context.Background())
	r.Draining, r.drain = context.WithCancelCause(r.Life)
	return r
}

// maxSetbacks is how many Opens in a row may give nothing to do before the call ends with an error.
const maxSetbacks = 6

// firstPause is how long to wait after the first setback; it doubles with each further one.
const firstPause = 20 * time.Millisecond

// Do runs h once for the call's key, or gives the result of whoever did. seen is the generation of the flight that the caller
// has read, 0 for none: no caller gets the result of a call that is known to be of an earlier generation.
func (r *Runner) Do(ctx context.Context, in effect.Call, h effect.Handler, seen uint32) (effect.Result, error) {
	if err := r.calls.checkInside(ctx, in.Key); err != nil {
		return effect.Result{}, err
	}
	asked := time.Now()
	for {
		if !r.Work.Enter() {
			return effect.Result{}, effect.ErrClosed
		}
		c, first := r.calls.join(ctx, in, seen)
		if first {
			r.spawn(func() { r.run(c, h) })
			return c.await(ctx, 0, effect.Executed)
		}
		r.Work.Leave()
		left := in.Wait
		if in.Wait > 0 {
			left = max(in.Wait-time.Since(asked), time.Nanosecond)
		}
		var result effect.Result
		var err error
		if c.in.Submission.Fingerprint.Matches(in.Submission.Fingerprint) {
			result, err = c.await(ctx, left, effect.Joined)
		} else {
			c.leave(context.Canceled)
			err = &effect.Conflict{Key: in.Key, Fields: flight.DifferingFields(c.in.Submission.Input.Data, in.Submission.Input.Data, nil)}
		}
		if !c.ended() || !c.leavesUndecided(in, seen, err) || ctx.Err() != nil || in.Wait > 0 && time.Since(asked) >= in.Wait {
			return result, err
		}
	}
}

// maxIdle bounds how many goroutines wait for work.
const maxIdle = 256

// spawn runs f on a goroutine of its own, if possible on one that waits for work: a new goroutine begins with a small stack and
// grows it several times in the course of a call, which costs more than the call.
func (r *Runner) spawn(f func()) {
	select {
	case r.idle <- f:
		return
	default:
	}
	go func(f func()) {
		for {
			f()
			if r.waiting.Add(1) > maxIdle {
				r.waiting.Add(-1)
				return
			}
			select {
			case f = <-r.idle:
				r.waiting.Add(-1)
			case <-r.Draining.Done():
				return
			}
		}
	}(f)
}

// run tells everybody who waits for the call how it ended.
func (r *Runner) run(c *call, h effect.Handler) {
	defer r.Work.Leave()
	if r.Draining.Err() != nil { // Close may have told all calls before this one was among them
		c.drop(effect.ErrClosed)
	}
	c.end(r.runAttempts(c, h))
}

// runAttempts is the story of one call: open, act, report, as often as the answers say. c.interest ends when nobody waits any
// more; an effect that has started goes on.
func (r *Runner) runAttempts(c *call, h effect.Handler) (effect.Result, error) {
	var until time.Time
	if c.in.Wait > 0 {
		until = time.Now().Add(c.in.Wait)
	}
	for setbacks := 0; ; {
		a, err := r.transport.Open(c.interest, &c.in, until)
		if a.Generation > 0 {
			c.generation.Store(a.Generation)
		}
		for err == nil && a.Decision == Look {
			a, err = r.lookUp(c, a)
		}
		if err == nil && a.Decision == Proceed {
			opened := a // its handler may ask it for longer than this round lasts
			a, err = r.act(c, &opened, h)
		}
		switch {
		case err != nil || a.Decision == Done:
			return a.Result, c.causeOf(err)
		case c.interest.Err() != nil:
			return effect.Result{}, context.Cause(c.interest)
		case a.Setback == nil:
			setbacks = 0
			continue
		}
		if setbacks++; setbacks >= maxSetbacks && errors.Is(a.Setback, errTooLate) {
			return effect.Result{}, &effect.Unsettled{Key: c.in.Key, Outcome: flight.NotDone, Err: a.Setback}
		} else if setbacks >= maxSetbacks {
			return effect.Result{}, &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", c.in.Key, a.Setback)}
		}
		if errors.Is(a.Setback, effect.ErrLeaseLost) {
			_ = r.transport.Renew(c.interest) // where it fails, so does the next Open, which says why
		}
		if !clock.Sleep(c.interest, clock.Jitter(firstPause<<setbacks)) {
			return effect.Result{}, context.Cause(c.interest)
		}
	}
}

// act performs the effect of an open attempt, and reports it. An attempt that may not start any more is reported as not
// started, and so leaves no doubt.
func (r *Runner) act(c *call, a *Answer, h effect.Handler) (Answer, error) {
	if err := mayStart(r.Draining, a); err != nil {
		answer, failed := a.Attempt.Report(c.values, End{Outcome: flight.NotDone, NotStarted: true, Err: err})
		if r.Draining.Err() != nil {
			return Answer{}, effect.ErrClosed
		}
		return answer, failed
	}
	// From here on the effect may have happened. If the process dies before the report is recorded, the recovery policy decides
	// what becomes of that.
	end, late := r.perform(c, a, h)
	if late != nil {
		r.Work.Go(func() {
			end := <-late
			end.Late = true
			_, _ = a.Attempt.Report(c.values, end)
		})
	}
	answer, err := a.Attempt.Report(c.values, end)
	if err == nil {
		if answer.Decision == Unsettled {
			err = &effect.Unsettled{Key: c.in.Key, Outcome: end.Outcome, Err: end.Err}
		}
		return answer, err
	}
	var unrecorded *effect.Unrecorded
	if errors.As(err, &unrecorded) {
		unrecorded.Result = effect.Result{
			Key: c.in.Key, FlightID: c.in.Key.FlightID(), Outcome: end.Outcome, Source: effect.Executed, Attempt: a.Spec.Number,
			Answer: end.Answer, Size: len(end.Answer.Body),
		}
	}
	return answer, err
}

// mayStart is called right before each send. An attempt that is over may send nothing, whatever its handler still does:
// another attempt may be open.
func mayStart(ctx context.Context, a *Answer) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the effect must not be started: %w", context.Cause(ctx))
	case a.Attempt.Trust() <= 0:
		return effect.ErrLeaseLost
	case a.Policy.AttemptTimeout > 0 && a.Sent.Add(a.Policy.AttemptTimeout).Left() <= 0, !a.Resend.IsZero() && a.Resend.Left() <= 0:
		return errTooLate
	}
	return nil
}

// errTooLate keeps back an effect whose attempt is too old: its time-out is over, or the time in which the provider surely
// knows the key.
var errTooLate = fmt.Errorf("the attempt is too old, the effect must not be started: %w", context.DeadlineExceeded)

// NoLookUp is the cause of the doubt of a caller that was sent to look and brings no look-up.
const NoLookUp = "an effect of unknown outcome must be looked up at the provider, and this caller brings no look-up"

// lookUp asks the provider what happened, and sends the verdict.
func (r *Runner) lookUp(c *call, a Answer) (Answer, error) {
	if c.in.LookUp == nil {
		_, err := a.Attempt.Report(c.values, End{Outcome: flight.NotDone, NotStarted: true, Err: errors.New("its caller brings no look-up")})
		return Answer{}, errors.Join(&effect.InDoubt{Key: c.in.Key, Cause: NoLookUp}, err)
	}
	verb, found := r.ask(c, &a)
	return a.Attempt.Verify(c.interest, verb, found)
}

// Close lets running effects finish and report, as long as ctx lives. Calls that wait for others, and new calls, get
// effect.ErrClosed. When ctx ends, the contexts of handlers end with that cause, and they are waited for no longer than
// hungAfter. ErrHung: one has not returned even then.
func (r *Runner) Close(ctx context.Context) error {
	r.drain(effect.ErrClosed)
	empty := r.Work.Shut() // from here on there are no new calls
	r.calls.drop(effect.ErrClosed, false)
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	r.kill(effect.ErrClosed)
	r.calls.drop(effect.ErrClosed, true)
	patience := time.NewTimer(r.hungAfter)
	defer patience.Stop()
	select {
	case <-empty:
		return nil
	case <-patience.C:
		return fmt.Errorf("%w: %w", ErrHung, context.Cause(ctx))
	}
}

// End ends Life: nothing is under way any more, or nobody waits for it.
func (r *Runner) End() { r.kill(effect.ErrClosed) }

// ErrHung says that a handler has not returned after its context had ended.
var ErrHung = errors.New("a handler did not return after its context had ended")

// Check says what is wrong with a call, whoever runs it. Errors are *flight.InvalidError.
func Check(call *effect.Call, h effect.Handler) error {
	switch p := &call.Submission.Policy; {
	case call.Key.IsZero():
		return &flight.InvalidError{Field: "key", Detail: "the call names no key"}
	case h == nil:
		return &flight.InvalidError{Field: "handler", Detail: "the call brings no handler"}
	case p.CanLookUp() && call.LookUp == nil:
		return &flight.InvalidError{Field: "look_up", Detail: "recovery verify needs a look-up"}
	case call.Submission.Input.Size > flight.MaxInput:
		return &flight.InvalidError{Field: "input", Detail: fmt.Sprintf("it has %d bytes; at most %d are allowed", call.Submission.Input.Size, flight.MaxInput)}
	}
	return call.Submission.Policy.Check()
}
