package clusterstore

import (
	"cmp"
	"context"
	"iter"
	"strings"

	"github.com/flightd/flightd/flight"
)

// Jobs is this node's view of the submitted jobs. The node that leads the ledger hands them out.
type Jobs struct{ store *Store }

// Ready iterates over the jobs of an action that can be handed out now, in their order; without lookUps not over those whose outcome
// has to be looked up. The loop's body must not wait and must not read the ledger: no entry is applied meanwhile.
func (j Jobs) Ready(namespace, action string, lookUps bool) iter.Seq[flight.ID] {
	return func(yield func(flight.ID) bool) {
		fs := j.store.fsm
		fs.tablesMu.RLock()
		defer fs.tablesMu.RUnlock()
		fs.due.ReadyJobs(namespace, action, lookUps)(yield)
	}
}

// ProposeAll is that of the store.
func (j Jobs) ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	return j.store.ProposeAll(ctx, commands)
}

// ProposeTogether is that of the store.
func (j Jobs) ProposeTogether(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	return j.store.ProposeTogether(ctx, commands)
}

// OnReady sets the function that is called when a job can be handed out that could not before; nil: none. It is called while
// entries are applied, so it must not wait and must not read the ledger.
func (j Jobs) OnReady(f func(namespace, action string)) { j.store.fsm.jobReady.Store(&f) }

// DueSagas iterates over the sagas that have to be driven on, in no order. The loop's body must not wait and must not read the ledger.
func (j Jobs) DueSagas() iter.Seq[flight.ID] {
	return func(yield func(flight.ID) bool) {
		fs := j.store.fsm
		fs.tablesMu.RLock()
		defer fs.tablesMu.RUnlock()
		fs.due.DueSagas()(yield)
	}
}

// OnSagaDue sets the function that is called when a saga becomes due; nil: none. It is called while entries are applied, so it must not
// wait and must not read the ledger.
func (j Jobs) OnSagaDue(f func()) { j.store.fsm.sagaDue.Store(&f) }

// OnEnded sets the function that is called when a job has ended, as OnReady does.
func (j Jobs) OnEnded(f func(namespace, action string)) { j.store.fsm.jobEnded.Store(&f) }

// Advance makes the jobs ready whose time has come.
func (j Jobs) Advance() {
	fs, header := j.store.fsm, j.store.Header()
	header.Now = j.store.Now()
	fs.tablesMu.RLock()
	next := fs.due.NextStart(&header)
	fs.tablesMu.RUnlock()
	for more := next != 0 && next <= header.Now; more; { // entries may be applied between the steps
		fs.tablesMu.Lock()
		more = fs.due.Advance(&header)
		fs.tablesMu.Unlock()
	}
}

// LookUps implements remote.Jobs.
func (j Jobs) LookUps(most int) []flight.ID {
	fs := j.store.fsm
	fs.tablesMu.RLock()
	defer fs.tablesMu.RUnlock()
	return fs.due.LookUps(most)
}

// Queued returns the number of jobs of a namespace that are not over.
func (j Jobs) Queued(namespace string) int {
	fs := j.store.fsm
	fs.tablesMu.RLock()
	defer fs.tablesMu.RUnlock()
	return fs.due.QueuedIn(namespace)
}

// poolsStep is the number of actions that Pools reads under one lock. Entries are applied between two steps.
const poolsStep = 256

// Pools iterates over the actions that have jobs, behind the action after, which is NAMESPACE/ACTION, in the order of their namespaces
// and names: over those of a namespace, or of all if it is empty. Entries may be applied between two of them.
func (j Jobs) Pools(namespace, after string) iter.Seq[flight.PoolStatus] {
	return func(yield func(flight.PoolStatus) bool) {
		fs, step := j.store.fsm, make([]flight.PoolStatus, 0, poolsStep)
		for from, action, _ := strings.Cut(cmp.Or(after, namespace), "/"); ; {
			step = step[:0]
			fs.tablesMu.RLock()
			for p := range fs.due.PoolsFrom(from, action) {
				if len(step) == poolsStep || namespace != "" && p.Namespace != namespace {
					break
				}
				step = append(step, p)
			}
			fs.tablesMu.RUnlock()
			for _, p := range step {
				if !yield(p) {
					return
				}
				from, action = p.Namespace, p.Action
			}
			if len(step) < poolsStep {
				return
			}
		}
	}
}

// Lane returns the first jobs of a lane that are not over, in their order, how many of them may open, and how many there are.
func (j Jobs) Lane(namespace, action, lane string, limit int) (jobs []flight.ID, open, total int) {
	fs := j.store.fsm
	fs.tablesMu.RLock()
	defer fs.tablesMu.RUnlock()
	for id, mayOpen := range fs.due.LaneJobs(namespace, action, lane) {
		if len(jobs) == limit {
			break
		}
		if jobs = append(jobs, id); mayOpen {
			open++
		}
	}
	return jobs, open, fs.due.LaneSize(namespace, action, lane)
}

// LaneBlocker returns the first job of the lane of a flight, if the lane does not let the flight open.
func (j Jobs) LaneBlocker(id flight.ID) (first flight.ID, blocked bool) {
	fs := j.store.fsm
	fs.tablesMu.RLock()
	defer fs.tablesMu.RUnlock()
	return fs.due.LaneBlocker(id)
}

// Paused reports whether the ledger says that no job of an action is handed out.
func (j Jobs) Paused(namespace, action string) bool {
	return j.store.Document(flight.QueueID(namespace, action)) != nil
}

func (fs *fsm) notifySagaDue() {
	if f := fs.sagaDue.Load(); f != nil && *f != nil {
		(*f)()
	}
}

func (fs *fsm) notifyReady(namespace, action string) {
	if f := fs.jobReady.Load(); f != nil && *f != nil {
		(*f)(namespace, action)
	}
}

func (fs *fsm) notifyEnded(namespace, action string) {
	if f := fs.jobEnded.Load(); f != nil && *f != nil {
		(*f)(namespace, action)
	}
}
