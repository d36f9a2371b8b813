package remote

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
)

// Jobs is this node's view of the submitted jobs.
type Jobs interface {
	// Ready iterates over the jobs of an action that can be handed out now, in their order. The loop's body must not wait and
	// must not read the ledger.
	Ready(namespace, action string) iter.Seq[flight.ID]
	// ProposeAll proposes commands in their order. A reply of DecisionNone: the result of its command is unknown.
	ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error)
	// Advance makes the jobs ready whose time has come.
	Advance()
	// OnReady sets the function that is called when a job can be handed out that could not before. It must not wait and must
	// not read the ledger.
	OnReady(func(namespace, action string))
}

// Pools takes jobs and hands them to the workers of their actions. A job is handed out by an Open under the worker's session,
// through Service, by the rules of every other open. Pools stores nothing that a change of leader could lose.
type Pools struct {
	service *Service
	jobs    Jobs

	mu      sync.Mutex              // guards the fields below; taken before the lock of the table of jobs, never inside it
	taken   map[flight.ID]time.Time // jobs that a claim is opening, or has failed to open: not offered to others until then
	claims  map[claimID]*claim      // the claims of which a copy may still arrive
	cleanAt int                     // the number of claims at which old ones are forgotten
	turn    int                     // the action that the next claim begins with

	waitMu  sync.Mutex // guards the fields below; may be taken inside the lock of the table of jobs
	waiting map[poolID][]*waiter
	asked   map[poolID]map[flight.SessionID]time.Time // when each worker's session last asked for jobs, at this node

	cleanAskedAt int // the number of actions asked for at which old ones are forgotten
}

type poolID struct{ namespace, action string }

const (
	// lookInterval is how often a waiting claim looks for jobs that it was not woken for.
	lookInterval = time.Second
	// startInterval is how often Run looks for jobs whose time has come.
	startInterval = 100 * time.Millisecond
	// workerMemory is how long a worker that asks no more counts as a worker of its actions. A claim waits for less.
	workerMemory = time.Minute
)

// NewPools returns the pools of a service. Run must be called.
func NewPools(service *Service, jobs Jobs) *Pools {
	p := &Pools{service: service, jobs: jobs, taken: make(map[flight.ID]time.Time), claims: make(map[claimID]*claim),
		waiting: make(map[poolID][]*waiter), asked: make(map[poolID]map[flight.SessionID]time.Time)}
	jobs.OnReady(p.wake)
	return p
}

// Run makes jobs ready when their time has come, until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	for {
		p.jobs.Advance()
		if !clock.Sleep(ctx, startInterval) {
			return
		}
	}
}

// SubmitRequest asks that the workers of an action perform an effect.
type SubmitRequest struct {
	Key        flight.Key
	Submission flight.Submission
	Queue      flight.Queue
}

// SubmitAnswer is the answer to one SubmitRequest. Queued is false for a key that has a flight already. Errors are
// *effect.Conflict for another input, *effect.Expired, *effect.Fenced and *effect.Unavailable.
type SubmitAnswer struct {
	Flight *flight.Flight
	Queued bool
	Err    error
}

// Submit makes jobs of keys that were never used, in their order. The same request again, or somebody else's, is harmless. If the
// process dies before Submit returns, some of the jobs may be in the ledger; a repeat finds them.
func (p *Pools) Submit(ctx context.Context, requests []SubmitRequest) []SubmitAnswer {
	s, answers, commands := p.service, make([]SubmitAnswer, len(requests)), make([]flight.Command, len(requests))
	for i := range requests {
		commands[i] = &flight.Submit{Key: requests[i].Key, Submission: requests[i].Submission, Queue: &requests[i].Queue}
	}
	var replies []flight.Reply
	err := drainingError()
	if s.calls.Enter() {
		defer s.calls.Leave()
		replies, err = p.jobs.ProposeAll(s.requestDeadline.Context(), commands)
	}
	for i := range answers {
		req, a := &requests[i], &answers[i]
		if len(replies) == 0 || replies[i].Decision == flight.DecisionNone {
			a.Err = answer.Unavailable(req.Key, err)
			continue
		}
		reply := &replies[i]
		s.cfg.Events.Publish(req.Key, reply.Events)
		switch reply.Decision {
		case flight.DecisionReconciling:
			a.Err = answer.Reconciling(req.Key)
		case flight.DecisionConflict, flight.DecisionExpired:
			a.Err = s.writer.Final(reply.Flight, req.Key, &req.Submission)
		case flight.DecisionFenced:
			a.Err = &effect.Fenced{Key: req.Key}
		default:
			a.Flight, a.Queued = reply.Flight, reply.Changed
		}
	}
	return answers
}

// Workers returns how many workers' sessions have asked for jobs of an action at this node lately.
func (p *Pools) Workers(namespace, action string) (n int) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	for _, at := range p.asked[poolID{namespace, action}] {
		if time.Since(at) < workerMemory {
			n++
		}
	}
	return n
}

// take chooses at most req.Slots ready jobs, from the actions in turn, and keeps them from other claims until they are given
// back.
func (p *Pools) take(req *ClaimRequest) (taken []flight.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ready := time.Now(), make([][]flight.ID, len(req.Actions))
	for i := range req.Actions {
		action := req.Actions[(p.turn+i)%len(req.Actions)]
		for id := range p.jobs.Ready(req.Namespace, action) {
			if now.Before(p.taken[id]) {
				continue
			}
			if ready[i] = append(ready[i], id); len(ready[i]) == req.Slots {
				break
			}
		}
	}
	p.turn++
	for round := 0; len(taken) < req.Slots; round++ {
		before := len(taken)
		for _, ids := range ready {
			if round < len(ids) && len(taken) < req.Slots {
				taken = append(taken, ids[round])
			}
		}
		if len(taken) == before {
			break
		}
	}
	for _, id := range taken {
		p.taken[id] = now.Add(p.service.cfg.TTL)
	}
	return taken
}

// giveBack lets other claims take a job; after a failure, a little later.
func (p *Pools) giveBack(id flight.ID, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.taken, id); failed {
		p.taken[id] = time.Now().Add(lookInterval)
	}
	if len(p.taken) > 2*maxTaken {
		for id, until := range p.taken {
			if time.Now().After(until) {
				delete(p.taken, id)
			}
		}
	}
}

// maxTaken is the number of jobs above which those that failed long ago are forgotten.
const maxTaken = 1024

// waiter is a claim that waits for a job.
type waiter struct {
	ready chan poolID // receives when a job may be ready
	pools []poolID
}

// wait registers a claim, before it looks for jobs: what becomes ready afterwards wakes it, or a claim before it.
func (p *Pools) wait(req *ClaimRequest) *waiter {
	w := &waiter{ready: make(chan poolID, 1)}
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	for _, action := range req.Actions {
		id := poolID{req.Namespace, action}
		w.pools = append(w.pools, id)
		p.waiting[id] = append(p.waiting[id], w)
		p.noteWorker(id, req.Session)
	}
	return w
}

// noteWorker remembers that a session works an action. The caller holds waitMu.
func (p *Pools) noteWorker(id poolID, session flight.SessionID) {
	workers := p.asked[id]
	if workers == nil {
		if len(p.asked) >= p.cleanAskedAt {
			maps.DeleteFunc(p.asked, func(_ poolID, sessions map[flight.SessionID]time.Time) bool { return forgetOld(sessions) == 0 })
			p.cleanAskedAt = max(1024, 2*len(p.asked))
		}
		workers = make(map[flight.SessionID]time.Time)
		p.asked[id] = workers
	}
	if _, known := workers[session]; !known {
		forgetOld(workers)
	}
	workers[session] = time.Now()
}

// forgetOld removes the workers that ask no more, and returns how many are left.
func forgetOld(workers map[flight.SessionID]time.Time) int {
	maps.DeleteFunc(workers, func(_ flight.SessionID, at time.Time) bool { return time.Since(at) >= workerMemory })
	return len(workers)
}

// leave ends a wait. A job that the claim was woken for, and has not looked for, wakes the next one.
func (p *Pools) leave(w *waiter) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	p.remove(w)
	select {
	case id := <-w.ready:
		p.wakeFirst(id)
	default:
	}
}

// remove removes a waiter from the lists of its pools. The caller holds waitMu.
func (p *Pools) remove(w *waiter) {
	for _, id := range w.pools {
		if rest := slices.DeleteFunc(p.waiting[id], func(other *waiter) bool { return other == w }); len(rest) > 0 {
			p.waiting[id] = rest
		} else {
			delete(p.waiting, id)
		}
	}
	w.pools = nil
}

// wake wakes the claim that has waited longest for a job of the action. Each job wakes one.
func (p *Pools) wake(namespace, action string) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	p.wakeFirst(poolID{namespace, action})
}

// wakeFirst is wake. The caller holds waitMu.
func (p *Pools) wakeFirst(id poolID) {
	if first := p.waiting[id]; len(first) > 0 {
		first[0].ready <- id // it has room: a waiter is woken once
		p.remove(first[0])
	}
}
