package remote

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/answer"
)

// ClaimRequest asks for jobs.
type ClaimRequest struct {
	Namespace string
	Actions   []string
	// WithoutLookUp are those of the actions whose unknown outcomes the worker cannot look up: others are handed these jobs.
	WithoutLookUp []string
	Slots         int // the most jobs to hand out
	Session       flight.SessionID
	// Nonce is new for each claim, and the same for each repeat. The nonce of each attempt is wire.JobNonce of it.
	Nonce    string
	NotAfter flight.Time // of each Open; the worker sets it once per nonce
	Owner    string
	Wait     time.Duration // how long to wait for the first job
	// PublicURL is that of OpenRequest; not empty: each job has a callback URL.
	PublicURL string
	// StillAllowed is that of OpenRequest.
	StillAllowed func() error
	// Trace is that of the claim: a job belongs to the trace of its submission, or else to this one.
	Trace flight.Trace
	// Size returns about how many bytes a job takes in the answer. It is called before the job is opened. nil: jobs have no size.
	Size func(f *flight.Flight) int
}

// maxClaimBytes is the maximum number of bytes of the jobs in one answer, unless the answer has only one job.
const maxClaimBytes = 4 << 20

// Job is an attempt, or a verification, that was handed to a worker. Trust and ResendWithin count from when the worker sent the
// claim.
type Job struct {
	OpenAnswer
	Nonce  string
	opened time.Time // before the Open was proposed
}

// Age is how long ago the job was handed out, or longer: its time-out runs since then.
func (j *Job) Age() time.Duration { return time.Since(j.opened) }

type claimID struct {
	session flight.SessionID
	nonce   string
}

// claim is one claim request and its copies.
type claim struct {
	sync.Mutex
	answered bool // a copy that arrives now takes no more jobs
}

// Claim hands out jobs of the actions: at least one, or none when the wait is over. A repeat, at any node, gets the same jobs, or
// fewer: those whose attempts are still open. If the process dies, or the answer is lost, the jobs that were opened are found by
// the repeat; else the worker's renewals list them, and it abandons what it does not know; else they end with its session.
// Errors are those of Open. With an error nothing was handed out that the worker could know.
func (p *Pools) Claim(ctx context.Context, req ClaimRequest) ([]Job, error) {
	s, start := p.service, time.Now()
	if !s.calls.Enter() {
		return nil, drainingError()
	}
	defer s.calls.Leave()
	c := p.claim(&req)
	c.Lock()
	defer c.Unlock()
	handed, err := p.handedOut(&req)
	if err != nil {
		return nil, err
	}
	if len(handed) > 0 || c.answered {
		jobs, _ := p.openAll(ctx, &req, handed, start, true)
		return jobs, nil
	}
	waitCtx, cancel := context.WithTimeout(ctx, req.Wait)
	defer cancel()
	defer context.AfterFunc(s.drainCtx, cancel)()
	for {
		w := p.wait(&req)
		ids := p.take(&req)
		if len(ids) > 0 {
			p.leave(w)
			jobs, err := p.openAll(ctx, &req, p.fit(&req, ids), start, false)
			if c.answered = len(jobs) > 0; c.answered || err != nil {
				return jobs, err
			}
			if waitCtx.Err() == nil {
				continue
			}
		}
		if !p.waitForJob(waitCtx, &req, w) || ctx.Err() != nil {
			c.answered = true
			return nil, context.Cause(ctx)
		}
		if req.StillAllowed != nil {
			if err := req.StillAllowed(); err != nil {
				return nil, err
			}
		}
	}
}

// fit returns the first of the jobs that were taken, as many as fit into one answer. It gives the others back to other claims.
func (p *Pools) fit(req *ClaimRequest, ids []flight.ID) []flight.ID {
	size := 0
	for i, id := range ids {
		f, err := p.service.cfg.Ledger.Flight(id)
		if err != nil || f == nil || req.Size == nil {
			continue // open sees it, too
		}
		if size += req.Size(f); size <= maxClaimBytes || i == 0 {
			continue
		}
		for _, id := range ids[i:] {
			p.giveBack(id, false)
		}
		for _, action := range req.Actions {
			p.wake(req.Namespace, action)
		}
		return ids[:i]
	}
	return ids
}

// waitForJob waits until a job may be ready, or it is time to look again. It returns false when the wait is over.
func (p *Pools) waitForJob(ctx context.Context, req *ClaimRequest, w *waiter) bool {
	defer p.leave(w)
	if limits := p.service.cfg.Limits; limits != nil {
		end, ok := limits.StartWait(req.Namespace, false)
		if !ok {
			return false
		}
		defer end()
	}
	look := time.NewTimer(lookInterval)
	defer look.Stop()
	select {
	case <-w.ready:
	case <-look.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// claim returns the record of a claim request. It is the same for all its copies, none of which opens anything after flight.MaxOpenLife.
func (p *Pools) claim(req *ClaimRequest) *claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := claimID{req.Session, req.Nonce}
	c, known := p.claims.get(id)
	if !known {
		c = new(claim)
		p.claims.put(id, c)
	}
	return c
}

// handedOut returns the flights whose open attempt, or verification, an earlier delivery of the claim was given.
func (p *Pools) handedOut(req *ClaimRequest) (ids []flight.ID, err error) {
	s := p.service
	_, n := s.cfg.Sessions.HeldBy(req.Session, flight.ID{}, 0)
	held, _ := s.cfg.Sessions.HeldBy(req.Session, flight.ID{}, n)
	for _, id := range held {
		f, err := s.cfg.Ledger.Flight(id)
		if err != nil {
			return nil, answer.Unavailable(flight.Key{}, err)
		}
		nonce := wire.NonceOf(wire.JobNonce(req.Nonce, id))
		if a := f.OpenAttempt(); a != nil && a.Nonce == nonce || f != nil && f.Verification != nil && f.Verification.Nonce == nonce {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// openAll opens the jobs under the worker's session, all at once, so that the ledger and etcd get them in a few batches. It returns
// those that may be performed or have to be looked up. The error is that of a job that failed for another reason than its own
// state, if no job was opened.
func (p *Pools) openAll(ctx context.Context, req *ClaimRequest, ids []flight.ID, start time.Time, repeated bool) (jobs []Job, failed error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			job, err := p.open(ctx, req, id, start, repeated)
			p.giveBack(id, err != nil || job == nil)
			mu.Lock()
			defer mu.Unlock()
			if job != nil {
				jobs = append(jobs, *job)
			} else if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	if len(jobs) > 0 {
		failed = nil
	}
	return jobs, failed
}

// open opens one job. It returns nil without an error for a job that cannot be handed out as it is now.
func (p *Pools) open(ctx context.Context, req *ClaimRequest, id flight.ID, start time.Time, repeated bool) (*Job, error) {
	s := p.service
	f, err := s.cfg.Ledger.Flight(id)
	if err != nil || f == nil || f.Key.IsZero() {
		return nil, err
	}
	if limits := s.cfg.Limits; limits != nil && !repeated && !f.Key.IsStep() { // a limit must not leave a saga half done
		if err := limits.AllowWork(req.Namespace); err != nil {
			return nil, err
		}
	}
	asked, trace := time.Now(), req.Trace
	if f.Place != nil {
		trace = cmp.Or(f.Place.Queue.Trace, trace)
	}
	job := &Job{Nonce: wire.JobNonce(req.Nonce, id), opened: asked}
	job.OpenAnswer, err = s.Open(ctx, OpenRequest{
		Key: f.Key, Submission: flight.Submission{Fingerprint: f.Fingerprint, Input: f.Input, Policy: f.Policy}, Nonce: wire.NonceOf(job.Nonce),
		NotAfter: req.NotAfter, Session: req.Session, Owner: req.Owner, StillAllowed: req.StillAllowed,
		Callback: req.PublicURL != "", PublicURL: req.PublicURL, Trace: trace,
	})
	switch {
	case errors.As(err, new(*effect.Unavailable)), errors.As(err, new(*effect.LeaseLost)), errors.As(err, new(*effect.TooMany)), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, err
	case err != nil, job.Decision != flight.DecisionProceed && job.Decision != flight.DecisionVerify:
		return nil, nil // its state has changed, or this nonce has opened it before
	case job.Session != req.Session:
		return nil, nil // another session has used this nonce, and its worker performs the job
	}
	if repeated && job.Decision == flight.DecisionProceed { // an earlier delivery has opened it: only the ledger knows when
		age := s.cfg.Reader.Now().AsTime().Sub(job.Flight.Newest().OpenedAt.AsTime())
		job.opened = time.Now().Add(-age - time.Millisecond)
	}
	before := asked.Sub(start)
	job.Trust += before
	if job.ResendWithin != nil {
		*job.ResendWithin += before
	}
	return job, nil
}
