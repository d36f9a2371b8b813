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
	// is set, the handler was not called and never will be. If Completion.Suspended is set, the ledger knows the end already, and
	// the answer is that of the flight. *effect.Unrecorded: the report is not in the ledger yet,
	// and is sent again.
	Report(ctx context.Context, end Completion) (Answer, error)
	// Verify sends the finding of a look-up. It is answered like Open.
	Verify(ctx context.Context, verb flight.Finding, found effect.Answer) (Answer, error)
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
	DecisionDone Decision = iota
	// DecisionRetry: the call is undecided, and another Open may decide it.
	DecisionRetry
	// DecisionProceed: act, then report.
	DecisionProceed
	// DecisionVerify: look up the outcome at the provider, then send the finding.
	DecisionVerify
	// DecisionUnsettled: the attempt has ended and the flight has not; its policy declares no retry.
	DecisionUnsettled
)

// Answer is the result of Open, Report and Verify.
type Answer struct {
	Decision   Decision
	Result     effect.Result // with DecisionDone
	RetryCause error         // with DecisionRetry: why the Open has failed. nil: an attempt has ended, and the next may begin
	Generation uint32        // of the flight; 0: not known
	// With DecisionProceed and DecisionVerify.
	Attempt     Attempt
	Spec        effect.Spec   // without its contexts and MayStart
	Policy      flight.Policy // of the flight, as the first caller declared it
	SentAt      clock.Instant // when the Open was first sent: the attempt's time-out starts here
	ResendUntil clock.Instant // until then the provider knows the idempotency key; zero: no bound
}

// Runner runs each effect once. Its methods may be called concurrently.
type Runner struct {
	transport Transport
	hungAfter time.Duration
	calls     callGroup
	// Work counts calls, handlers and the background work of transports. Close waits for it.
	Work gate.Gate
	// BaseContext ends when Close has timed out or CancelBase was called, DrainContext when Close begins.
	BaseContext, DrainContext context.Context
	kill, drain               context.CancelCauseFunc
	idleWorkers               chan func() // unbuffered: only an idle goroutine receives from it
	idleCount                 atomic.Int32
}

// New creates a runner. A handler that has not returned hungAfter after the end of its time-out counts as hung, and its
// outcome as unknown.
func New(t Transport, hungAfter time.Duration) *Runner {
	r := &Runner{transport: t, hungAfter: hungAfter, idleWorkers: make(chan func())}
	r.BaseContext, r.kill = context.WithCancelCause(context.Background())
	r.DrainContext, r.drain = context.WithCancelCause(r.BaseContext)
	return r
}

// maxFailedOpens is how many consecutive Opens may fail before the call ends with an error.
const maxFailedOpens = 6

// minRetryPause is the pause after the first failed Open, before it is doubled for each further one.
const minRetryPause = 20 * time.Millisecond

// Do runs h once for the call's key, or returns the result of the call that did. minGeneration is the generation of the
// flight that the caller has read, or 0: no caller gets the result of a call that is known to be of an earlier
// generation.
func (r *Runner) Do(ctx context.Context, req effect.Call, h effect.Handler, minGeneration uint32) (effect.Result, error) {
	if err := r.calls.checkReentry(ctx, req.Key); err != nil {
		return effect.Result{}, err
	}
	start := time.Now()
	for {
		if !r.Work.Enter() {
			return effect.Result{}, effect.ErrClosed
		}
		c, first := r.calls.join(ctx, req, minGeneration)
		if first {
			r.spawn(func() { r.run(c, h) })
			return c.wait(ctx, 0, effect.SourceExecuted)
		}
		r.Work.Leave()
		remaining := req.Wait
		if req.Wait > 0 {
			remaining = max(req.Wait-time.Since(start), time.Nanosecond)
		}
		var result effect.Result
		var err error
		if c.req.Submission.Fingerprint.Matches(req.Submission.Fingerprint) {
			result, err = c.wait(ctx, remaining, effect.SourceJoined)
		} else {
			c.removeCaller(context.Canceled)
			err = &effect.Conflict{Key: req.Key, Fields: flight.DifferingFields(c.req.Submission.Input.Data, req.Submission.Input.Data, nil)}
		}
		if !c.ended() || !c.joinerMustRetry(req, minGeneration, err) || ctx.Err() != nil || req.Wait > 0 && time.Since(start) >= req.Wait {
			return result, err
		}
	}
}

// maxIdleWorkers bounds how many idle goroutines wait for work.
const maxIdleWorkers = 256

// spawn runs f on an idle goroutine, or on a new one: a new goroutine starts with a small stack and grows it several
// times during a call, which costs more than the call. Idle goroutines end when Close begins. f must be counted in
// Work.
func (r *Runner) spawn(f func()) {
	select {
	case r.idleWorkers <- f:
		return
	default:
	}
	go func(f func()) {
		for {
			f()
			if r.idleCount.Add(1) > maxIdleWorkers {
				r.idleCount.Add(-1)
				return
			}
			select {
			case f = <-r.idleWorkers:
				r.idleCount.Add(-1)
			case <-r.DrainContext.Done():
				return
			}
		}
	}(f)
}

// run runs a call and gives its result to all its callers.
func (r *Runner) run(c *call, h effect.Handler) {
	defer r.Work.Leave()
	if r.DrainContext.Err() != nil { // Close may have cancelled all calls before this one was registered
		c.cancelWait(effect.ErrClosed)
	}
	c.end(r.runAttempts(c, h))
}

// runAttempts runs one call: open, act, report, as often as the answers say. c.waitCtx ends when no caller waits any
// more; an effect that has started continues.
func (r *Runner) runAttempts(c *call, h effect.Handler) (effect.Result, error) {
	var until time.Time
	if c.req.Wait > 0 {
		until = time.Now().Add(c.req.Wait)
	}
	for failedOpens := 0; ; {
		a, err := r.transport.Open(c.waitCtx, &c.req, until)
		if a.Generation > 0 {
			c.generation.Store(a.Generation)
		}
		for err == nil && a.Decision == DecisionVerify {
			a, err = r.lookUp(c, a)
		}
		if err == nil && a.Decision == DecisionProceed {
			opened := a // its handler may use it after this iteration
			a, err = r.executeAttempt(c, &opened, h)
		}
		switch {
		case c.lookUpErr != nil && errors.As(err, new(*effect.Busy)):
			return effect.Result{}, &effect.InDoubt{Key: c.req.Key, Cause: LookUpFailedCause + c.lookUpErr.Error()}
		case err != nil || a.Decision == DecisionDone:
			return a.Result, c.causeOf(err)
		case c.waitCtx.Err() != nil:
			return effect.Result{}, context.Cause(c.waitCtx)
		case a.RetryCause == nil:
			failedOpens = 0
			continue
		}
		if failedOpens++; failedOpens >= maxFailedOpens && errors.Is(a.RetryCause, errTooLate) {
			return effect.Result{}, &effect.Unsettled{Key: c.req.Key, Outcome: flight.OutcomeNotDone, Err: a.RetryCause}
		} else if failedOpens >= maxFailedOpens {
			return effect.Result{}, &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", c.req.Key, a.RetryCause)}
		}
		if errors.Is(a.RetryCause, effect.ErrLeaseLost) {
			_ = r.transport.Renew(c.waitCtx) // if it fails, so does the next Open, which returns the reason
		}
		if !clock.Sleep(c.waitCtx, clock.Jitter(minRetryPause<<failedOpens)) {
			return effect.Result{}, context.Cause(c.waitCtx)
		}
	}
}

// executeAttempt performs the effect of an open attempt and reports it. An attempt that may no longer start is reported
// as not started, which leaves no doubt.
func (r *Runner) executeAttempt(c *call, a *Answer, h effect.Handler) (Answer, error) {
	if err := mayStart(r.DrainContext, a); err != nil {
		answer, failed := a.Attempt.Report(c.baseCtx, Completion{Outcome: flight.OutcomeNotDone, NotStarted: true, Err: err})
		if r.DrainContext.Err() != nil {
			return Answer{}, effect.ErrClosed
		}
		return answer, failed
	}
	// Point of no return: from here on the effect may have happened. If the process dies before the report is recorded,
	// the recovery policy decides.
	end, late := r.runHandler(c, a, h)
	answer, err := a.Attempt.Report(c.baseCtx, end)
	if late != nil { // only now: a report of unknown that came after that of not_done would bring the doubt back
		r.Work.Go(func() {
			end := <-late
			end.Late = true
			_, _ = a.Attempt.Report(c.baseCtx, end)
		})
	}
	if err == nil {
		if answer.Decision == DecisionUnsettled {
			err = &effect.Unsettled{Key: c.req.Key, Outcome: end.Outcome, Err: end.Err}
		}
		return answer, err
	}
	if unrecorded, ok := errors.AsType[*effect.Unrecorded](err); ok {
		unrecorded.Result = effect.Result{
			Key: c.req.Key, FlightID: c.req.Key.FlightID(), Outcome: end.Outcome, Source: effect.SourceExecuted, Attempt: a.Spec.Number,
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
	case a.Policy.AttemptTimeout > 0 && a.SentAt.Add(a.Policy.AttemptTimeout).Remaining() <= 0, !a.ResendUntil.IsZero() && a.ResendUntil.Remaining() <= 0:
		return errTooLate
	}
	return nil
}

// errTooLate prevents an effect whose attempt is too old: the attempt has timed out, or the provider may have forgotten
// the idempotency key.
var errTooLate = fmt.Errorf("the attempt is too old, the effect must not be started: %w", context.DeadlineExceeded)

// NoLookUpCause is the cause of the doubt if the caller must verify and has no look-up.
const NoLookUpCause = "an effect of unknown outcome must be looked up at the provider, and this caller has no look-up"

// LookUpFailedCause is the prefix of the cause of a doubt if the caller's wait ended and its last look-up failed.
const LookUpFailedCause = "the look-up failed: "

// lookUp runs the caller's look-up and sends its finding.
func (r *Runner) lookUp(c *call, a Answer) (Answer, error) {
	if c.req.LookUp == nil {
		_, err := a.Attempt.Report(c.baseCtx, Completion{Outcome: flight.OutcomeNotDone, NotStarted: true, Err: errors.New("the caller has no look-up")})
		return Answer{}, errors.Join(&effect.InDoubt{Key: c.req.Key, Cause: NoLookUpCause}, err)
	}
	var verb flight.Finding
	var found effect.Answer
	verb, found, c.lookUpErr = r.runLookUp(c, &a)
	return a.Attempt.Verify(c.waitCtx, verb, found)
}

// Close waits until running effects have finished and reported. Calls that wait for other holders, and new calls, get
// effect.ErrClosed. When ctx ends, Close cancels the contexts of the handlers with that cause and waits at most
// hungAfter more. ErrHung: a handler has not returned even then.
func (r *Runner) Close(ctx context.Context) error {
	r.drain(effect.ErrClosed)
	empty := r.Work.BeginClose() // from here on no call starts
	r.calls.cancelAll(effect.ErrClosed, false)
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	r.kill(effect.ErrClosed)
	r.calls.cancelAll(effect.ErrClosed, true)
	timer := time.NewTimer(r.hungAfter)
	defer timer.Stop()
	select {
	case <-empty:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: %w", ErrHung, context.Cause(ctx))
	}
}

// CancelBase ends BaseContext. Call it after Close.
func (r *Runner) CancelBase() { r.kill(effect.ErrClosed) }

// ErrHung is the error of Close if a handler has not returned after the end of its context.
var ErrHung = errors.New("a handler did not return after its context had ended")

// CheckCall validates a call, for every transport. Errors are *flight.InvalidError.
func CheckCall(call *effect.Call, h effect.Handler) error {
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
	return call.Submission.Policy.Validate()
}
