package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/internal/strictjson"
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
	var err error
	if ctx.Err() == nil {
		_, err = run.Do(context.WithValue(context.WithoutCancel(ctx), handedKey{}, j), *call, h.effect, 0)
	}
	if !j.taken { // not begun: another worker may
		j.opening.abandonInBackground(context.WithoutCancel(ctx))
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
	taken   bool // the runner has it; set by the goroutine that runs the call, before it returns
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

// claim asks for jobs once, under the client's session. A claim that is not answered is given up: what it may have been handed
// is abandoned, now or when a renewal lists it.
func (w *Worker) claim(ctx context.Context, slots int) ([]*handedJob, error) {
	c := w.client
	if err := w.declare(ctx); err != nil {
		return nil, err
	}
	s, err := c.sessions.require(ctx)
	if err != nil {
		return nil, err
	}
	claim := s.beginClaim()
	if claim == nil { // it was just retired
		return nil, nil
	}
	wait := claimWait.Milliseconds()
	r := wire.ClaimRequest{Session: s.id, Nonce: claim.nonce, NotAfter: claim.notAfter, Actions: w.names, WithoutLookUp: w.withoutLookUp(), Slots: int64(slots), WaitMS: &wait, Owner: c.opts.owner, Callback: true}
	jobs, err := w.sendClaim(ctx, s, claim, &r)
	switch {
	case err == nil:
		return jobs, nil
	case errors.As(err, new(*effect.LeaseLost)):
		s.markLost() // it is renewed for the jobs that run under it
	case problemOf(err) == nil, ctx.Err() != nil: // perhaps jobs were handed out whose answer was lost: ask once more, without a wait
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTryTimeout)
		defer cancel()
		*r.WaitMS = 0
		if jobs, failed := w.sendClaim(again, s, claim, &r); failed == nil {
			if ctx.Err() == nil {
				return jobs, nil
			}
			for _, j := range jobs {
				j.opening.abandonInBackground(context.WithoutCancel(ctx))
			}
		}
	}
	s.endClaim(claim, nil, true)
	return nil, err
}

// sendClaim sends a claim until a server answers, and begins to track the jobs in the answer.
func (w *Worker) sendClaim(ctx context.Context, s *session, claim *sentClaim, r *wire.ClaimRequest) ([]*handedJob, error) {
	resp, err := w.client.ask(ctx, request{
		method: http.MethodPost, path: "/v1/flights:claim", body: strictjson.Append(nil, r), nonce: claim.nonce, timeout: wire.Wait(r.WaitMS) + defaultTryTimeout,
	})
	a, err := decode[wire.ClaimAnswer](resp, err)
	if err != nil {
		return nil, err
	}
	var jobs []*handedJob
	for i := range a.Jobs {
		if j := newHandedJob(s, claim, &a.Jobs[i], resp.sentAt, a.ServedMS); j != nil {
			jobs = append(jobs, j)
		}
	}
	s.endClaim(claim, jobs, false)
	return jobs, nil
}

// newHandedJob reads one job of an answer. It returns nil for one that this process cannot perform: the renewals list it, and it is
// abandoned.
func newHandedJob(s *session, claim *sentClaim, j *wire.Job, sent clock.Instant, servedMS int64) *handedJob {
	c := s.client
	key, err := flight.ParseStoredKey(j.Key)
	if err != nil || j.Session != s.id || j.FlightID != key.FlightID().String() || j.Nonce != wire.JobNonce(claim.nonce, key.FlightID()) ||
		j.Policy == nil || j.Deployment != c.deployment {
		return nil
	}
	policy, bad := j.Policy.Flight()
	if bad != nil {
		return nil
	}
	call := &effect.Call{Key: key, Submission: flight.Submission{Policy: policy}, Callback: j.CallbackURL != ""}
	o := &opening{client: c, key: key, call: call, policy: policy, nonce: j.Nonce, notAfter: claim.notAfter, expiresAt: claim.expiresAt, phase: phaseAwaited, job: true,
		waitUntil: time.Now()} // a job that has to wait is left, and handed out again
	answer := OpenAnswer{OpenAnswer: j.OpenAnswer, SentAt: sent.Time, sentAt: sent}
	call.Submission.Input = o.input(&answer)
	o.firstSent = sent.Add(time.Duration(servedMS-j.AgeMS) * time.Millisecond) // or earlier: the attempt's time-out runs from then
	return &handedJob{opening: o, action: cmp.Or(j.Action, key.Name()), answer: answer}
}

// sentClaim is a claim request, from before it is sent until no copy of it can open an attempt.
type sentClaim struct {
	nonce     string
	notAfter  int64
	expiresAt clock.Instant // not_after has surely passed
	ended     bool
	endedAt   clock.Instant
	lost      bool               // it has ended without an answer
	handed    map[flight.ID]bool // by its answer
}

// settled reports whether nothing that the claim has opened is unknown: it was answered, or a renewal has listed what is open since no copy of
// it can open anything. If no server lists anything for so long, the session has ended. The caller holds s.mu.
func (s *session) settled(claim *sentClaim) bool {
	listed := s.listedAt.After(claim.expiresAt.Time) && s.listedAt.After(claim.endedAt.Time)
	return claim.ended && (!claim.lost || listed || time.Since(claim.endedAt.Time) > maxReportHold)
}

// beginClaim makes a claim, before it is sent under the session. It returns nil if the session is retired.
func (s *session) beginClaim() *sentClaim {
	clk := &s.client.ledgerClock
	validity := clk.validity(claimWait)
	claim := &sentClaim{nonce: newNonce(), notAfter: clk.notAfter(validity), expiresAt: clock.Now().Add(validity)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil
	}
	for len(s.claims) > 0 && s.settled(s.claims[0]) && s.claims[0].expiresAt.Remaining() < -s.renewEvery { // a renewal has listed what its copies opened
		s.claims = s.claims[1:]
	}
	s.claims = append(s.claims, claim)
	return claim
}

// endClaim ends a claim; lost: without an answer. Attempts of its nonce that are listed later, and are not among the jobs, are abandoned.
func (s *session) endClaim(claim *sentClaim, jobs []*handedJob, lost bool) {
	s.mu.Lock()
	if claim.ended { // an answer to its repeat has come before
		lost = false
	}
	claim.ended, claim.endedAt, claim.lost, claim.handed = true, clock.Now(), lost, make(map[flight.ID]bool, len(jobs))
	for _, j := range jobs {
		claim.handed[j.opening.key.FlightID()] = true
		j.opening.session = s
		s.nonces[wire.NonceHex(j.opening.nonce)] = j.opening
	}
	over := s.retired && !s.isNeeded((*opening).needsSession)
	s.mu.Unlock()
	if over {
		s.stopRenewing()
	}
}

// openingOfClaim returns the opening of a listed attempt that a claim of this session has opened, although no job of it was
// handed to this process: while the claim is not answered, its answer may still bring the job; then nobody knows it. It returns nil
// for any other attempt. The caller holds s.mu.
func (s *session) openingOfClaim(key flight.Key, nonceHex string) *opening {
	id := key.FlightID()
	for _, claim := range s.claims {
		nonce := wire.JobNonce(claim.nonce, id)
		if wire.NonceHex(nonce) != nonceHex || claim.handed[id] {
			continue
		}
		o := &opening{client: s.client, key: key, nonce: nonce, notAfter: claim.notAfter, expiresAt: claim.expiresAt, session: s, phase: phaseAwaited}
		if claim.ended {
			o.phase = phaseGivenUp
		}
		return o
	}
	return nil
}

// isNeeded reports whether the session has to be renewed for a claim, or for a nonce of that kind. The caller holds s.mu.
func (s *session) isNeeded(kind func(*opening) bool) bool {
	for _, claim := range s.claims {
		if !s.settled(claim) {
			return true
		}
	}
	return s.anyNonce(kind)
}
