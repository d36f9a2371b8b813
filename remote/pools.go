package remote

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
)

// Jobs is this node's view of the submitted jobs.
type Jobs interface {
	JobTable
	// ProposeAll proposes commands in their order. A reply of DecisionNone: the result of its command is unknown.
	ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error)
	// Advance makes the jobs ready whose time has come.
	Advance()
	// LookUps returns jobs that wait for the time of a look-up, at most so many, the next ones first.
	LookUps(most int) []flight.ID
	// OnReady sets the function that is called when a job can be handed out that could not before. It must not wait and must
	// not read the ledger.
	OnReady(func(namespace, action string))
	// OnEnded sets the function that is called when a job has ended, as OnReady does.
	OnEnded(func(namespace, action string))
}

// JobTable says how the submitted jobs stand.
type JobTable interface {
	// Ready iterates over the jobs of an action that can be handed out now, in their order; without lookUps not over those whose
	// outcome has to be looked up. The loop's body must not wait and must not read the ledger.
	Ready(namespace, action string, lookUps bool) iter.Seq[flight.ID]
	// Paused reports whether the ledger says that no job of an action is handed out.
	Paused(namespace, action string) bool
	// Pools iterates over the actions that have jobs, behind the action after, which is NAMESPACE/ACTION, in the order of their
	// namespaces and names: over those of a namespace, or of all if it is empty. The table may change between two of them.
	Pools(namespace, after string) iter.Seq[flight.PoolStatus]
	// Lane returns the first jobs of a lane that are not over, in their order, how many of them may open, and how many there are.
	Lane(namespace, action, lane string, limit int) (jobs []flight.ID, open, total int)
	// LaneBlocker returns the first job of the lane of a flight, if the lane does not let the flight open.
	LaneBlocker(id flight.ID) (first flight.ID, blocked bool)
}

// Pools takes jobs and hands them to the workers of their actions. A job is handed out by an Open under the worker's session,
// through Service, by the rules of every other open. Pools stores nothing that a change of leader could lose.
type Pools struct {
	service *Service
	jobs    Jobs

	mu     sync.Mutex                  // guards the fields below; taken before the lock of the table of jobs, never inside it
	taken  map[flight.ID]taking        // jobs that a claim is opening
	failed recent[flight.ID, struct{}] // jobs that a claim has failed to open
	claims recent[claimID, *claim]     // the claims of which a copy may still arrive
	turn   int                         // the action that the next claim begins with

	waitMu   sync.Mutex // guards the fields below; may be taken inside the lock of the table of jobs
	waiting  map[poolID][]*waiter
	use      useGeneration // use of actions at this node since useSince
	oldUse   useGeneration // use in the previous generation
	useSince time.Time
}

type poolID struct{ namespace, action string }

// taking is a job that is not offered to other claims while one is opening it.
type taking struct {
	until time.Time
	pool  poolID
}

// recent is a map that forgets what was put into it longer than its life ago. It forgets a whole generation at once, so that no claim
// waits until the entries are searched; an entry is in memory for twice the life at most, as long as others are put.
type recent[K comparable, V any] struct {
	life  time.Duration
	since time.Time // of the generation now
	now   map[K]entry[V]
	old   map[K]entry[V]
}

type entry[V any] struct {
	value V
	at    time.Time
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	for _, generation := range []map[K]entry[V]{r.now, r.old} {
		if e, found := generation[key]; found && time.Since(e.at) < r.life {
			return e.value, true
		}
	}
	return value, false
}

func (r *recent[K, V]) put(key K, value V) {
	if at := time.Now(); r.now == nil || at.Sub(r.since) >= r.life {
		r.now, r.old, r.since = make(map[K]entry[V]), r.now, at
	}
	r.now[key] = entry[V]{value, time.Now()}
}

const (
	// lookInterval is how often a waiting claim looks for jobs that it was not woken for.
	lookInterval = time.Second
	// startInterval is how often Run looks for jobs whose time has come.
	startInterval = 100 * time.Millisecond
	// maxLookUps is the number of jobs whose settle delays Run measures; those of others begin with their first claims.
	maxLookUps = 1000
	// workerMemory is how long a worker that asks no more counts as a worker of its actions. A claim waits for less.
	workerMemory = time.Minute
)

// NewPools returns the pools of a service. Run must be called.
func NewPools(service *Service, jobs Jobs) *Pools {
	p := &Pools{service: service, jobs: jobs, taken: make(map[flight.ID]taking),
		failed: recent[flight.ID, struct{}]{life: lookInterval}, claims: recent[claimID, *claim]{life: flight.MaxOpenLife},
		waiting: make(map[poolID][]*waiter), use: newUse(), useSince: time.Now()}
	jobs.OnReady(p.wake)
	jobs.OnEnded(p.noteEnd)
	return p
}

// Run makes jobs ready when their time has come, until ctx ends. It begins to measure the settle delay of a job soon after the loss of its
// attempt: its first claim comes only when the delay is over by the ledger's time.
func (p *Pools) Run(ctx context.Context) {
	for round := 0; ; round++ {
		p.jobs.Advance()
		if round%10 == 0 {
			for _, id := range p.jobs.LookUps(maxLookUps) {
				if f, err := p.service.cfg.Ledger.Flight(id); err == nil {
					p.service.lookUpDelay.Remaining(f)
				}
			}
		}
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
			if called := s.cfg.Events.Called; called != nil { // flightd restore asked lists it
				called(req.Key, executor.ResultReconciling, 0)
			}
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

// take chooses at most req.Slots ready jobs, from the actions that are not paused, in turn, and keeps them from other claims until
// they are given back.
func (p *Pools) take(req *ClaimRequest) (taken []flight.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ready, actions := time.Now(), make([][]flight.ID, len(req.Actions)), make([]string, len(req.Actions))
	for i := range req.Actions {
		action := req.Actions[(p.turn+i)%len(req.Actions)]
		if actions[i] = action; p.jobs.Paused(req.Namespace, action) {
			continue
		}
		for id := range p.jobs.Ready(req.Namespace, action, !slices.Contains(req.WithoutLookUp, action)) {
			if _, failed := p.failed.get(id); failed || now.Before(p.taken[id].until) {
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
		for i, ids := range ready {
			if round < len(ids) && len(taken) < req.Slots {
				taken = append(taken, ids[round])
				p.taken[ids[round]] = taking{until: now.Add(p.service.cfg.TTL), pool: poolID{req.Namespace, actions[i]}}
			}
		}
		if len(taken) == before {
			break
		}
	}
	return taken
}

// giveBack lets other claims take a job; after a failure, a little later.
func (p *Pools) giveBack(id flight.ID, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.taken, id); failed {
		p.failed.put(id, struct{}{})
	}
}

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
		p.noteWorker(id, req.Session, !slices.Contains(req.WithoutLookUp, action))
	}
	return w
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
