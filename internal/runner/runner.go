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

// Transport opens attempts.
type Transport interface {
	// Open opens an attempt under a new nonce. It waits for the attempts of other holders until the given time (zero:
	// without end), or until ctx ends. If ctx ends first, or if Open does not know whether an attempt was opened, it
	// abandons the attempt. Errors are final for the call. If the process dies, an attempt that was opened ends with
	// its session.
	Open(ctx context.Context, call *effect.Call, until time.Time) (Answer, error)
	// Renew renews the session for the next Open, or replaces it if it has ended. It returns an error if neither is
	// possible.
	Renew(ctx context.Context) error
}

// Attempt is the result of an Open: an open attempt, or the verification of the attempt before it.
type Attempt interface {
	// Report sends the end of the attempt to the ledger, and returns the answer that follows. If Completion.NotStarted
	// is set, the handler was not called and never will be. *effect.Unrecorded: the report is not in the ledger yet,
	// and is sent again.
	Report(ctx context.Context, end End) (Answer, error)
	// Verify sends the finding of a look-up. It is answered like Open.
	Verify(ctx context.Context, verb flight.Verb, found effect.Answer) (Answer, error)
	// Trust returns how much longer the session allows an effect to start.
	Trust() time.Duration
	// Context returns a context that ends with the trust.
	Context() context.Context
	// Watch is called right before the handler. Until stop is called, it calls cancel when the flight's cancellation is
	// requested.
	Watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func())
}

// Decision says how a call continues.
type Decision uint8

const (
	// DecisionDone: the callers get the Result, or the error that is returned with it.
	Done Decision = iota
	// DecisionRetry: the call is undecided, and another Open may decide it.
	Again
	// DecisionProceed: act, then report.
	Proceed
	// DecisionVerify: look up the outcome at the provider, then send the finding.
	Look
	// DecisionUnsettled: the attempt has ended and the flight has not; its policy declares no retry.
	Unsettled
)

// Answer is the result of Open, Report and Verify.
type Answer struct {
	Decision   Decision
	Result     effect.Result // with Done
	Setback    error         // with DecisionRetry: why the Open has failed. nil: an attempt has ended, and the next may begin
	Generation uint32        // of the flight; 0: not known
	// With DecisionProceed and DecisionVerify.
	Attempt Attempt
	Spec    effect.Spec   // without its contexts and MayStart
	Policy  flight.Policy // of the flight, as the first caller declared it
	Sent    clock.Moment  // when the Open was first sent: the attempt's time-out starts here
	Resend  clock.Moment  // until then the provider knows the idempotency key; zero: no bound
}

// Runner runs each effect once. Its methods may be called concurrently.
type Runner struct {
	transport Transport
	hungAfter time.Duration
	calls     calls
	// Work counts calls, handlers and the background work of transports. Close waits for it.
	Work gate.Gate
	// BaseContext ends when Close has timed out or CancelBase was called, DrainContext when Close begins.
	Life, Draining context.Context
	kill, drain    context.CancelCauseFunc
	idle           chan func() // unbuffered: only an idle goroutine receives from it
	waiting        atomic.Int32
}

// New creates a runner. A handler that has not returned hungAfter after the end of its time-out counts as hung, and its
// outcome as unknown.
func New(t Transport, hungAfter time.Duration) *Runner {
	r := &Runner{transport: t, hungAfter: hungAfter, idle: make(chan func())}
	r.Life, r.kill = context.WithCancelCause(context.Background())
	r.Draining, r.drain = context.WithCancelCause(r.Life)
	return r
}

// maxFailedOpens is how many consecutive Opens may fail before the call ends with an error.
const maxSetbacks = 6

// minRetryPause is the pause after the first failed Open, before it is doubled for each further one.
const firstPause = 20 * time.Millisecond

// Do runs h once for the call's key, or returns the result of the call that did. minGeneration is the generation of the
// flight that the caller has read, or 0: no caller gets the result of a call that is known to be of an earlier
// generation.
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

// maxIdleWorkers bounds how many idle goroutines wait for work.
const maxIdle = 256

// spawn runs f on an idle goroutine, or on a new one: a new goroutine starts with a small stack and grows it several
// times during a call, which costs more than the call. Idle goroutines end when Close begins. f must be counted in
// Work.
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

// run runs a call and gives its result to all its callers.
func (r *Runner) run(c *call, h effect.Handler) {
	defer r.Work.Leave()
	if r.Draining.Err() != nil { // Close may have cancelled all calls before this one was registered
		c.drop(effect.ErrClosed)
	}
	c.end(r.runAttempts(c, h))
}

// runAttempts runs one call: open, act, report, as often as the answers say. c.waitCtx ends when no caller waits any
// more; an effect that has started continues.
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
			opened := a // its handler may use it after this iteration
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
			_ = r.transport.Renew(c.interest) // if it fails, so does the next Open, which returns the reason
		}
		if !clock.Sleep(c.interest, clock.Jitter(firstPause<<setbacks)) {
			return effect.Result{}, context.Cause(c.interest)
		}
	}
}

// executeAttempt performs the effect of an open attempt and reports it. An attempt that may no longer start is reported
// as not started, which leaves no doubt.
func (r *Runner) act(c *call, a *Answer, h effect.Handler) (Answer, error) {
	if err := mayStart(r.Draining, a); err != nil {
		answer, failed := a.Attempt.Report(c.values, End{Outcome: flight.NotDone, NotStarted: true, Err: err})
		if r.Draining.Err() != nil {
			return Answer{}, effect.ErrClosed
		}
		return answer, failed
	}
	// Point of no return: from here on the effect may have happened. If the process dies before the report is recorded,
	// the recovery policy decides.
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

// mayStart is called right before each send. It returns an error if the attempt has ended: another attempt may be open,
// so nothing more may be sent.
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

// errTooLate prevents an effect whose attempt is too old: the attempt has timed out, or the provider may have forgotten
// the idempotency key.
var errTooLate = fmt.Errorf("the attempt is too old, the effect must not be started: %w", context.DeadlineExceeded)

// NoLookUpCause is the cause of the doubt if the caller must verify and has no look-up.
const NoLookUp = "an effect of unknown outcome must be looked up at the provider, and this caller has no look-up"

// lookUp runs the caller's look-up and sends its finding.
func (r *Runner) lookUp(c *call, a Answer) (Answer, error) {
	if c.in.LookUp == nil {
		_, err := a.Attempt.Report(c.values, End{Outcome: flight.NotDone, NotStarted: true, Err: errors.New("the caller has no look-up")})
		return Answer{}, errors.Join(&effect.InDoubt{Key: c.in.Key, Cause: NoLookUp}, err)
	}
	verb, found := r.ask(c, &a)
	return a.Attempt.Verify(c.interest, verb, found)
}

// Close waits until running effects have finished and reported. Calls that wait for other holders, and new calls, get
// effect.ErrClosed. When ctx ends, Close cancels the contexts of the handlers with that cause and waits at most
// hungAfter more. ErrHung: a handler has not returned even then.
func (r *Runner) Close(ctx context.Context) error {
	r.drain(effect.ErrClosed)
	empty := r.Work.Shut() // from here on no call starts
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

// CancelBase ends BaseContext. Call it after Close.
func (r *Runner) End() { r.kill(effect.ErrClosed) }

// ErrHung is the error of Close if a handler has not returned after the end of its context.
var ErrHung = errors.New("a handler did not return after its context had ended")

// CheckCall validates a call, for every transport. Errors are *flight.InvalidError.
func Check(call *effect.Call, h effect.Handler) error {
	switch p := &call.Submission.Policy; {
	case call.Key.IsZero():
		return &flight.InvalidError{Field: "key", Detail: "the call has no key"}
	case h == nil:
		return &flight.InvalidError{Field: "handler", Detail: "the call has no handler"}
	case p.CanLookUp() && call.LookUp == nil:
		return &flight.InvalidError{Field: "look_up", Detail: "recovery verify needs a look-up"}
	case call.Submission.Input.Size > flight.MaxInput:
		return &flight.InvalidError{Field: "input", Detail: fmt.Sprintf("it has %d bytes; at most %d are allowed", call.Submission.Input.Size, flight.MaxInput)}
	}
	return call.Submission.Policy.Check()
}
