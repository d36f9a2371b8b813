package remote

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
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

// Queues returns the actions of a namespace that have jobs, workers or jobs that ended lately; of all namespaces if it is empty.
func (p *Pools) Queues(namespace string) []Queue {
	byID := make(map[poolID]*Queue)
	for _, s := range p.jobs.Pools(namespace) {
		byID[poolID{s.Namespace, s.Action}] = &Queue{PoolStatus: s}
	}
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	for id, u := range p.use {
		if namespace != "" && id.namespace != namespace {
			continue
		}
		q := byID[id]
		if q == nil {
			q = &Queue{PoolStatus: flight.PoolStatus{Namespace: id.namespace, Action: id.action}}
		}
		if q.Workers, q.EndedPerSecond = u.asking(), u.rate(); q.States != nil || u.isRecent() {
			byID[id] = q
		}
	}
	all := make([]Queue, 0, len(byID))
	for _, q := range byID {
		all = append(all, *q)
	}
	slices.SortFunc(all, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Action, b.Action))
	})
	return all
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
	if u := p.use[poolID{namespace, action}]; u != nil {
		return u.asking()
	}
	return 0
}

// LooksUp reports whether a worker that looks up unknown outcomes has asked for jobs of an action at this node lately.
func (p *Pools) LooksUp(namespace, action string) bool {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	u := p.use[poolID{namespace, action}]
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
		if t.opening && t.pool == id {
			return true
		}
	}
	return false
}

// poolUse is what a node that leads remembers of the use of one action.
type poolUse struct {
	workers  map[flight.SessionID]time.Time // when each worker's session last asked for jobs
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
	return n
}

// isRecent reports whether workers have asked, or jobs have ended, lately.
func (u *poolUse) isRecent() bool {
	return u.asking() > 0 || u.ended > 0 && time.Since(u.endedAt) < workerMemory
}

// useOf returns the use of an action. The caller holds waitMu.
func (p *Pools) useOf(id poolID) *poolUse {
	u := p.use[id]
	if u == nil {
		if len(p.use) >= p.cleanUseAt {
			maps.DeleteFunc(p.use, func(_ poolID, u *poolUse) bool { return !u.isRecent() })
			p.cleanUseAt = max(1024, 2*len(p.use))
		}
		u = &poolUse{workers: make(map[flight.SessionID]time.Time)}
		p.use[id] = u
	}
	return u
}

// noteWorker remembers that a session works an action, and whether it looks up unknown outcomes. The caller holds waitMu.
func (p *Pools) noteWorker(id poolID, session flight.SessionID, looksUp bool) {
	u := p.useOf(id)
	if looksUp {
		u.lookUpAt = time.Now()
	}
	if _, known := u.workers[session]; !known {
		maps.DeleteFunc(u.workers, func(_ flight.SessionID, at time.Time) bool { return time.Since(at) >= workerMemory })
	}
	u.workers[session] = time.Now()
}

// noteEnd counts a job that has ended.
func (p *Pools) noteEnd(namespace, action string) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	u := p.useOf(poolID{namespace, action})
	u.ended, u.endedAt = u.weight()+1, time.Now()
}
