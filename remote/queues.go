package remote

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
)

// Queue is the state of the jobs of one action in one namespace, and of their workers.
type Queue struct {
	flight.PoolStatus
	Workers        int     // sessions that have asked for jobs of the action at this node lately
	EndedPerSecond float64 // jobs that have ended since this node leads: a mean that forgets half in 20 s
}

// ID is NAMESPACE/ACTION.
func (q *Queue) ID() string { return q.Namespace + "/" + q.Action }

// CompareQueues orders queues by their namespaces and names.
func CompareQueues(a, b Queue) int {
	return poolID{a.Namespace, a.Action}.compare(poolID{b.Namespace, b.Action})
}

func (id poolID) compare(other poolID) int {
	return cmp.Or(cmp.Compare(id.namespace, other.namespace), cmp.Compare(id.action, other.action))
}

// Queues iterates over the actions that have jobs, workers or jobs that ended lately, behind the one with the ID after, in the order of
// their namespaces and names: over those of a namespace, or of all if it is empty. There may be very many, so it makes no list of them.
func (p *Pools) Queues(namespace, after string) iter.Seq[Queue] {
	return func(yield func(Queue) bool) {
		used := make(map[poolID]usedQueue)
		for _, ns := range p.namespacesInUse(namespace) {
			p.addUse(ns, used)
		}
		var recent []poolID // those that have no jobs are found here
		from, action, _ := strings.Cut(after, "/")
		for id, u := range used {
			if u.recent && id.compare(poolID{from, action}) > 0 {
				recent = append(recent, id)
			}
		}
		slices.SortFunc(recent, poolID.compare)
		for s := range p.jobs.Pools(namespace, after) {
			id := poolID{s.Namespace, s.Action}
			for len(recent) > 0 && recent[0].compare(id) < 0 {
				if !yield(used[recent[0]].Queue) {
					return
				}
				recent = recent[1:]
			}
			if len(recent) > 0 && recent[0] == id {
				recent = recent[1:]
			}
			if u := used[id]; !yield(Queue{s, u.Workers, u.EndedPerSecond}) {
				return
			}
		}
		for _, id := range recent {
			if !yield(used[id].Queue) {
				return
			}
		}
	}
}

// namespacesInUse returns the namespaces with actions that were used lately, or the given one if it is not empty.
func (p *Pools) namespacesInUse(namespace string) []string {
	if namespace != "" {
		return []string{namespace}
	}
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(p.use.actions)), maps.Keys(p.oldUse.actions))
	slices.Sort(all)
	return slices.Compact(all)
}

// usedQueue is an action that has workers, or jobs that ended.
type usedQueue struct {
	Queue
	recent bool // since a minute ago
}

// addUse adds the workers and the rates of the actions of a namespace.
func (p *Pools) addUse(namespace string, used map[poolID]usedQueue) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	for _, actions := range []map[string]*poolUse{p.oldUse.actions[namespace], p.use.actions[namespace]} { // the newer ones replace the older
		for action, u := range actions {
			id, q := poolID{namespace, action}, flight.PoolStatus{Namespace: namespace, Action: action}
			used[id] = usedQueue{Queue{q, u.asking(), u.rate()}, u.isRecent() || used[id].recent}
		}
	}
}

// Lane is that of the table of jobs.
func (p *Pools) Lane(namespace, action, lane string, limit int) (jobs []flight.ID, open, total int) {
	return p.jobs.Lane(namespace, action, lane, limit)
}

// LaneBlocker is that of the table of jobs.
func (p *Pools) LaneBlocker(id flight.ID) (first flight.ID, blocked bool) {
	return p.jobs.LaneBlocker(id)
}

// Workers returns how many workers' sessions have asked for jobs of an action at this node lately.
func (p *Pools) Workers(namespace, action string) int {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	if u := p.findUse(poolID{namespace, action}); u != nil {
		return u.asking()
	}
	return 0
}

// LooksUp reports whether a worker that looks up unknown outcomes has asked for jobs of an action at this node lately.
func (p *Pools) LooksUp(namespace, action string) bool {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	u := p.findUse(poolID{namespace, action})
	return u != nil && time.Since(u.lookUpAt) < workerMemory
}

// settleInterval is how often PauseChanged looks whether claims are still opening jobs.
const settleInterval = 5 * time.Millisecond

// PauseChanged is called when the ledger has stored that an action is paused, or is not any more. It wakes all claims that wait for
// its jobs, and returns when no claim that looked before is opening one: from then on every job that was handed out is seen as
// running. The error is *effect.Unavailable if that takes too long; the ledger's word stays.
func (p *Pools) PauseChanged(ctx context.Context, namespace, action string) error {
	id := poolID{namespace, action}
	p.waitMu.Lock()
	for len(p.waiting[id]) > 0 {
		p.wakeFirst(id)
	}
	p.waitMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.service.cfg.TTL)
	defer cancel()
	for p.isOpening(id) {
		if !clock.Sleep(ctx, settleInterval) {
			return answer.Unavailable(flight.Key{}, context.Cause(ctx))
		}
	}
	return nil
}

func (p *Pools) isOpening(id poolID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.taken {
		if t.pool == id {
			return true
		}
	}
	return false
}

// poolUse is what a node that leads remembers of the use of one action.
type poolUse struct {
	workers  map[flight.SessionID]time.Time // when each worker's session last asked for jobs
	older    map[flight.SessionID]time.Time // the same, of the generation before
	lookUpAt time.Time                      // when one that looks up unknown outcomes last asked
	ended    float64                        // jobs that have ended; those of a time ago weigh less
	endedAt  time.Time                      // of the last one
}

// rateMemory is the time after which an ended job weighs 1/e in the rate.
const rateMemory = 30 * time.Second

// weight returns the number of ended jobs as it weighs now.
func (u *poolUse) weight() float64 {
	if u.ended == 0 {
		return 0
	}
	return u.ended * math.Exp(-time.Since(u.endedAt).Seconds()/rateMemory.Seconds())
}

func (u *poolUse) rate() float64 { return u.weight() / rateMemory.Seconds() }

// asking returns how many workers have asked lately.
func (u *poolUse) asking() (n int) {
	for _, at := range u.workers {
		if time.Since(at) < workerMemory {
			n++
		}
	}
	for session, at := range u.older {
		if u.workers[session].IsZero() && time.Since(at) < workerMemory {
			n++
		}
	}
	return n
}

// isRecent reports whether workers have asked, or jobs have ended, lately.
func (u *poolUse) isRecent() bool {
	return u.asking() > 0 || u.ended > 0 && time.Since(u.endedAt) < workerMemory
}

// useGeneration is the use of actions in a period of workerMemory. A whole generation is forgotten at once, so no claim waits until
// the actions that were named in claims long ago are searched.
type useGeneration struct {
	actions  map[string]map[string]*poolUse // by namespace and action
	workers  map[string]int                 // by namespace: the sum of the workers of its actions
	sessions map[flight.SessionID]int       // the number of actions that each session was noted for
}

// Claims may name any action, also one without jobs. These are the greatest numbers that a generation remembers. A worker beyond
// them gets its jobs and is not counted.
const (
	maxSessionActions   = 256
	maxNamespaceWorkers = 16_384 // workers of all actions of a namespace
)

func newUse() useGeneration {
	return useGeneration{make(map[string]map[string]*poolUse), make(map[string]int), make(map[flight.SessionID]int)}
}

// findUse returns the use of an action; nil if nothing is known of it. The caller holds waitMu.
func (p *Pools) findUse(id poolID) *poolUse {
	if u := p.use.actions[id.namespace][id.action]; u != nil {
		return u
	}
	return p.oldUse.actions[id.namespace][id.action]
}

// beginUse begins the next generation if it is time. The caller holds waitMu.
func (p *Pools) beginUse() {
	if time.Since(p.useSince) >= workerMemory {
		p.oldUse, p.use, p.useSince = p.use, newUse(), time.Now()
	}
}

// useOf returns the use of an action in this generation. The caller holds waitMu.
func (p *Pools) useOf(id poolID) *poolUse {
	u := p.use.actions[id.namespace][id.action]
	if u == nil {
		u = &poolUse{workers: make(map[flight.SessionID]time.Time)}
		if old := p.oldUse.actions[id.namespace][id.action]; old != nil {
			u.older, u.lookUpAt, u.ended, u.endedAt = old.workers, old.lookUpAt, old.ended, old.endedAt
		}
		if p.use.actions[id.namespace] == nil {
			p.use.actions[id.namespace] = make(map[string]*poolUse)
		}
		p.use.actions[id.namespace][id.action] = u
	}
	return u
}

// noteWorker remembers that a session works an action, and whether it looks up unknown outcomes. The caller holds waitMu.
func (p *Pools) noteWorker(id poolID, session flight.SessionID, looksUp bool) {
	p.beginUse()
	if u := p.use.actions[id.namespace][id.action]; u == nil || u.workers[session].IsZero() {
		if p.use.sessions[session] >= maxSessionActions || p.use.workers[id.namespace] >= maxNamespaceWorkers {
			return
		}
		p.use.sessions[session]++
		p.use.workers[id.namespace]++
	}
	u := p.useOf(id)
	if looksUp {
		u.lookUpAt = time.Now()
	}
	u.workers[session] = time.Now()
}

// noteEnd counts a job that has ended.
func (p *Pools) noteEnd(namespace, action string) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	p.beginUse()
	u := p.useOf(poolID{namespace, action})
	u.ended, u.endedAt = u.weight()+1, time.Now()
}
