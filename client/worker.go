package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
)

// Worker claims jobs and performs them, under the session of its client. Work adds an action; Run works until its context ends.
type Worker struct {
	client      *Client
	concurrency int
	drain       time.Duration
	actions     map[string]*jobHandler
	names       []string
	before      []func(context.Context, *Client) error
	invalid     error         // of the options of an action
	freed       chan struct{} // receives when a job has ended
}

// Service is a set of actions that a worker performs together, such as a saga.
type Service interface {
	// Register adds the actions to the worker.
	Register(*Worker)
}

// Serve adds the actions of a service.
func (w *Worker) Serve(s Service) { s.Register(w) }

// BeforeRun adds a function that Run calls before it claims the first job. Its error ends Run.
func (w *Worker) BeforeRun(f func(context.Context, *Client) error) { w.before = append(w.before, f) }

// jobHandler performs the jobs of one action.
type jobHandler struct {
	effect effect.Handler
	lookUp effect.LookUp
	policy wire.ActionPolicy // that the worker brings, until it is declared
	failed atomic.Value      // string: error of the last failed look-up, which is logged once
}

// WorkerOption is an option of Client.Worker.
type WorkerOption func(*Worker)

// Concurrency sets how many jobs run at once; the default is 8.
func Concurrency(n int) WorkerOption { return func(w *Worker) { w.concurrency = n } }

// Drain sets how long Run waits for running jobs after its context has ended; the default is 30 s. Then their contexts end.
func Drain(d time.Duration) WorkerOption { return func(w *Worker) { w.drain = d } }

// Worker makes a worker.
func (c *Client) Worker(opts ...WorkerOption) *Worker {
	w := &Worker{client: c, concurrency: 8, drain: 30 * time.Second, actions: make(map[string]*jobHandler), freed: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(w)
	}
	return w
}

// Work lets the worker perform the jobs of an action. An input that does not decode into I is not done, with the reason. What fn
// returns is read like the result of Do's function. The options are the policy that the worker brings: see Run.
func Work[I, O any](w *Worker, action string, fn func(ctx context.Context, at Attempt, in I) (O, error), opts ...JobOption) {
	var o jobOptions
	for _, opt := range opts {
		opt.applyToJob(&o)
	}
	w.Handle(action, o.lookUp, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		var in I
		if data := at.Input(); len(data) > 0 {
			if err := json.Unmarshal(data, &in); err != nil {
				return effect.Answer{}, NotDone(fmt.Errorf("the input is not a %T: %w", in, err))
			}
		}
		out, err := fn(ctx, at, in)
		if err != nil {
			return effect.Answer{}, err
		}
		return answerOf(out), nil
	}, opts...)
}

// Handle is Work for a handler of package effect, which reads the input and makes the answer itself. Without a look-up (nil), a job
// whose outcome is unknown and has to be looked up is left to another worker, or to a person. The last handler of an action counts.
func (w *Worker) Handle(action string, lookUp effect.LookUp, h effect.Handler, opts ...JobOption) {
	if w.actions[action] == nil {
		w.names = append(w.names, action)
	}
	var o jobOptions
	for _, opt := range opts {
		opt.applyToJob(&o)
	}
	if o.lane != "" || o.laneLimit != 0 || o.priority != 0 || o.delay != 0 || !o.runAt.IsZero() {
		w.invalid = &flight.InvalidError{Field: "worker", Detail: "Lane, LaneLimit, Priority, RunAt and Delay are options of one job; a worker of " + action + " may bring LaneBy"}
	}
	if o.invalid != nil {
		w.invalid = o.invalid
	}
	if h == nil {
		w.invalid = &flight.InvalidError{Field: "handler", Detail: "the action " + action + " has no handler"}
	}
	w.actions[action] = &jobHandler{effect: h, lookUp: lookUp, policy: wire.ActionPolicy{Policy: o.policy, Retry: o.retry, Lane: o.laneBy}}
}

// claimWait is how long a claim waits for jobs at the server.
const claimWait = 15 * time.Second

// Run claims and performs jobs until ctx ends. Then it claims nothing more, gives back what was handed out and not begun, and waits
// for running jobs and their reports. If the process dies, its jobs end with its session, by their policies. Run returns *Error if
// the server rejects the first claim, such as for a token without the verb work.
//
// Before the first claim, Run declares the policies of the options of Work. If an action has no document, it is created from them,
// provided that the token has the verb define. A document that is there counts. If it differs in recovery, window, verification or
// lane, Run returns *PolicyDiffers; other differences are logged.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.names) == 0 || w.concurrency < 1 {
		return &flight.InvalidError{Field: "worker", Detail: "a worker needs an action (Work) and a concurrency of at least 1"}
	}
	if w.invalid != nil {
		return w.invalid
	}
	c := w.client
	if !c.runner.Work.Enter() {
		return effect.ErrClosed
	}
	defer c.runner.Work.Leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.runner.DrainContext, cancel)()
	for _, f := range w.before {
		if err := f(ctx, c); err != nil {
			return err
		}
	}
	var jobs sync.WaitGroup
	run := runner.New(jobTransport{c}, c.opts.times.hungAfter)
	slots := make(chan struct{}, w.concurrency)
	pause, claimedBefore := minRetryPause, false
	for ctx.Err() == nil {
		if len(slots) == cap(slots) {
			select {
			case <-w.freed:
			case <-ctx.Done():
			}
			continue
		}
		sent := time.Now()
		claimed, err := w.claim(ctx, min(cap(slots)-len(slots), wire.MaxSlots))
		claimedBefore = claimedBefore || err == nil
		claimed = slices.DeleteFunc(claimed, func(j *handedJob) bool { return w.leaveUnable(ctx, j) })
		waited := time.Since(sent) > claimWait/2 // else a server without room for a wait has answered at once
		if (err != nil || len(claimed) == 0 && !waited) && ctx.Err() == nil {
			if code := CodeOf(err); errors.As(err, new(*PolicyDiffers)) || !claimedBefore && (code == wire.Forbidden || code == wire.Unauthenticated || code == wire.InputInvalid) {
				return err // no job was handed out
			}
			if err != nil {
				c.opts.logger.Warn("flightd: no jobs could be claimed; trying again", "error", err)
			}
			clock.Sleep(ctx, clock.Jitter(pause))
			pause = min(2*pause, maxRetryPause)
			continue
		}
		pause = minRetryPause
		for _, j := range claimed {
			slots <- struct{}{} // has room: no other goroutine takes slots
			jobs.Go(func() {
				defer func() {
					<-slots
					select {
					case w.freed <- struct{}{}:
					default:
					}
				}()
				w.perform(ctx, run, j)
			})
		}
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), w.drain)
	defer done()
	defer context.AfterFunc(c.runner.BaseContext, done)() // Client.Close waits no longer
	late := run.Close(stop)
	run.CancelBase()
	if errors.Is(late, runner.ErrHung) { // a handler ignores the end of its context: Close waits for it, as for one of Do
		c.runner.Work.Go(func() {
			jobs.Wait()
			<-run.Work.BeginClose()
		})
		return late
	}
	jobs.Wait()
	return late
}

// withoutLookUp returns the actions that have no look-up.
func (w *Worker) withoutLookUp() (actions []string) {
	for _, name := range w.names {
		if w.actions[name].lookUp == nil {
			actions = append(actions, name)
		}
	}
	return actions
}

// leaveUnable gives back a job that has to be looked up since the server took it, if this worker has no look-up for it, and reports
// whether it did.
func (w *Worker) leaveUnable(ctx context.Context, j *handedJob) bool {
	if j.answer.Decision != wire.DecisionVerify || w.actions[j.action].lookUp != nil {
		return false
	}
	w.client.opts.logger.Warn("flightd: a job is left to another worker: the outcome of its effect is unknown, and this worker has no look-up", "key", j.opening.key.String())
	j.opening.abandonInBackground(context.WithoutCancel(ctx))
	return true
}

// perform performs one job.
func (w *Worker) perform(ctx context.Context, run *runner.Runner, j *handedJob) {
	h := w.actions[j.action]
	call := j.opening.call
	call.LookUp = h.lookUp
	act := h.effect
	if j.unread != nil {
		act = func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, effect.NotDone(fmt.Errorf("this client cannot read the job: %w", j.unread))
		}
	}
	var err error
	if ctx.Err() == nil {
		_, err = run.Do(context.WithValue(context.WithoutCancel(ctx), handedKey{}, j), *call, act, 0)
	}
	if !j.taken { // not begun: another worker may
		j.opening.abandonInBackground(context.WithoutCancel(ctx))
	}
	failure := ""
	if doubt, ok := errors.AsType[*effect.InDoubt](err); ok && strings.HasPrefix(doubt.Cause, runner.LookUpFailedCause) {
		failure = doubt.Cause
	}
	if call.LookUp != nil && h.failed.Swap(failure) == failure && failure != "" {
		return
	}
	if err != nil && !errors.As(err, new(*effect.Declined)) {
		w.client.opts.logger.Warn("flightd: a job has not succeeded", "key", call.Key.String(), "error", err)
	}
}

// handedJob is a job that a claim was answered with.
type handedJob struct {
	opening *opening
	action  string
	answer  OpenAnswer
	unread  error // the reason why this client cannot read it, if it cannot
	taken   bool  // the runner has it; set by the goroutine that runs the call, before it returns
}

type handedKey struct{}

// jobTransport implements runner.Transport for jobs: Open takes the job that was handed out.
type jobTransport struct{ *Client }

// Renew implements runner.Transport. The job's attempt belongs to one session.
func (t jobTransport) Renew(context.Context) error { return nil }

// errOtherWorker is the end of a call whose job is to be handed out once more.
var errOtherWorker = errors.New("the attempt has ended, and the job is handed out again")

// Open implements runner.Transport.
func (t jobTransport) Open(ctx context.Context, call *effect.Call, _ time.Time) (runner.Answer, error) {
	j, _ := ctx.Value(handedKey{}).(*handedJob)
	if j == nil || j.taken || j.opening.key != call.Key {
		return runner.Answer{}, errOtherWorker
	}
	j.taken = true
	d := runner.DecisionProceed
	if j.answer.Decision == wire.DecisionVerify {
		d = runner.DecisionVerify
	}
	return j.opening.grantedAnswer(d, &j.answer), nil
}
