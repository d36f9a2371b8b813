package flight

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"time"

	"github.com/google/btree"
)

// Queue is what a submission says about the place of a job. Only a Submit with a Queue makes a flight a job: workers claim
// it, and it stands in its lane.
type Queue struct {
	Priority int16  `cbor:"1,keyasint,omitempty"` // jobs of one action with a greater priority are handed out first
	Lane     string `cbor:"2,keyasint,omitempty"` // "": the job stands in no lane
	Limit    uint16 `cbor:"3,keyasint,omitempty"` // how many jobs of the lane may be open at once; 0: one
	RunAt    Time   `cbor:"4,keyasint,omitempty"` // earliest time of the first attempt; 0: at once
	Action   string `cbor:"5,keyasint,omitempty"` // of the workers that claim the job; "": the name of its key
	Trace    Trace  `cbor:"6,keyasint,omitzero"`  // of the submission; its attempts belong to it
}

// Place is the place of a job in its queue and its lane: the order of Due and Since. It never changes in a generation, so a
// job that is tried again, asks its provider, or waits for a person or a callback keeps its place.
type Place struct {
	Queue Queue   `cbor:"1,keyasint,omitzero"`
	Due   Time    `cbor:"2,keyasint,omitempty"` // first time at which it may be opened, never before its submission
	Since Version `cbor:"3,keyasint,omitzero"`  // of the submission, or of the retry by a person
}

// compare orders the jobs of a lane.
func (p *Place) compare(other *Place) int {
	return cmp.Or(cmp.Compare(p.Due, other.Due), cmp.Compare(p.Since.Index, other.Since.Index), cmp.Compare(p.Since.Pos, other.Since.Pos))
}

// Due is the part of a ledger's state machine that says which jobs may be handed out now, which flights are overdue, and how
// the jobs of a lane stand, which sagas have to be driven on, and which definitions they use. It is an index, rebuilt from the flights at
// each start: Update keeps it, and reads no clock. Only LaneBlocks and SagasOf decide anything in the ledger. The rest serves the leader,
// which compares stored times with the ledger's, and proposes. Due is not safe for concurrent use.
type Due struct {
	// Ready is called when a job of an action can be handed out that could not before. It may be nil.
	Ready func(namespace, action string)
	// SagaDue is called when a saga becomes due. It may be nil.
	SagaDue func()
	// Ended is called when a job of an action has ended. It may be nil.
	Ended func(namespace, action string)

	jobs      map[ID]*job
	pools     map[poolKey]*pool
	byAction  *btree.BTreeG[*pool] // the pools by namespace and action
	lanes     map[laneKey]*lane
	nodes     *btree.FreeListG[*job] // shared by the trees of jobs, because most of them are small
	queued    map[string]int         // jobs that are not over, by namespace
	sagas     map[ID]*sagaSteps
	dueSagas  map[ID]struct{}
	sagasOf   map[DocumentID]int // sagas that are not over, by their definition
	starts    timers             // of jobs that may be handed out at a later time
	deadlines timers             // of open attempts, callbacks, sleeping sagas and approvals
}

type poolKey struct{ namespace, action string }

// job is a flight with a place that is not over.
type job struct {
	id    ID
	place Place
	pool  *pool
	lane  *lane // nil: it stands in none
	state State
	held  bool // its lane does not let it open
	busy  bool // a session holds it
	// verifying: the outcome of an attempt has to be looked up.
	verifying bool
	start     timer
}

// pool has the jobs of one action in one namespace.
type pool struct {
	poolKey
	ready  *btree.BTreeG[*job]
	states StateCounts
	held   int                  // jobs that their lane does not let open
	busy   int                  // jobs that a session holds
	stuck  *btree.BTreeG[*lane] // stuck lanes, those with the most waiting jobs first; nil until a lane is stuck
	failed *btree.BTreeG[*job]  // jobs that keep failing, in their order; nil until there is one
}

// next returns the first ready job of a lower priority.
func (p *pool) next(priority int16) (next *job, ok bool) {
	if priority == math.MinInt16 {
		return nil, false
	}
	p.ready.AscendGreaterOrEqual(&job{place: Place{Queue: Queue{Priority: priority - 1}}}, func(j *job) bool {
		next, ok = j, true
		return false
	})
	return next, ok
}

// timer is the time at which a flight needs the leader. Times of holders are stored without the steps of the ledger's clock,
// because such a time moves by every step (Flight.HolderTime).
type timer struct {
	at     Time
	holder bool
	id     ID
}

func (t Time) withoutSteps(steps time.Duration) Time { return t.Add(-steps) }

// timers are ordered by time, those of holders apart.
type timers struct{ plain, holder *btree.BTreeG[timer] }

// NewDue returns the table of a ledger without flights.
func NewDue() *Due {
	byAction := btree.NewG(treeDegree, func(a, b *pool) bool {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.action, b.action)) < 0
	})
	return &Due{jobs: make(map[ID]*job), pools: make(map[poolKey]*pool), byAction: byAction, nodes: btree.NewFreeListG[*job](btree.DefaultFreeListSize), lanes: make(map[laneKey]*lane), queued: make(map[string]int),
		sagas: make(map[ID]*sagaSteps), dueSagas: make(map[ID]struct{}), sagasOf: make(map[DocumentID]int),
		starts: newTimers(), deadlines: newTimers()}
}

const treeDegree = 32

func newTimers() timers {
	less := func(a, b timer) bool { return cmp.Or(cmp.Compare(a.at, b.at), bytes.Compare(a.id[:], b.id[:])) < 0 }
	return timers{btree.NewG(treeDegree, less), btree.NewG(treeDegree, less)}
}

func (t timers) of(x timer) *btree.BTreeG[timer] {
	if x.holder {
		return t.holder
	}
	return t.plain
}

func (t timers) add(x timer)    { t.of(x).ReplaceOrInsert(x) }
func (t timers) remove(x timer) { t.of(x).Delete(x) }

// expired iterates over the timers whose time has come.
func (t timers) expired(h *Header) iter.Seq[timer] {
	return func(yield func(timer) bool) {
		more := true
		visit := func(x timer) bool { more = yield(x); return more }
		t.plain.AscendLessThan(timer{at: h.Now + 1}, visit)
		if more {
			t.holder.AscendLessThan(timer{at: h.Now.withoutSteps(h.Steps) + 1}, visit)
		}
	}
}

// next is the ledger time of the first timer; 0: there is none.
func (t timers) next(h *Header) Time {
	first := Time(math.MaxInt64)
	if x, ok := t.plain.Min(); ok {
		first = x.at
	}
	if x, ok := t.holder.Min(); ok {
		first = min(first, x.at.Add(h.Steps))
	}
	if first == math.MaxInt64 {
		return 0
	}
	return max(first, 1)
}

// LookUps returns jobs that wait for the time of a look-up, at most so many, the next ones first.
func (d *Due) LookUps(most int) (ids []ID) {
	d.starts.holder.Ascend(func(t timer) bool {
		ids = append(ids, t.id)
		return len(ids) < most
	})
	return ids
}

// startOf is the time from which the job may be handed out. ok is false while only another command makes it possible.
func startOf(f *Flight) (start timer, ok bool) {
	switch {
	case f.State == StateReady, f.State == StateScheduled:
		return timer{at: f.NotBefore, id: f.ID}, true
	case f.State == StateRunning && f.Verifying():
		v := f.Verification
		at := v.NotBefore
		if v.Session != (Session{}) {
			at = max(at, v.Until)
		}
		return timer{at: at.withoutSteps(f.Steps), holder: true, id: f.ID}, true
	}
	return timer{}, false
}

// deadlineOf is the time at which the flight needs a WakeUp. ok is false where it needs none.
func deadlineOf(f *Flight) (deadline timer, ok bool) {
	switch a := f.OpenAttempt(); {
	case a != nil:
		at := f.Deadline(&Header{}) // without the steps of the clock
		return timer{at: at, holder: true, id: f.ID}, at != 0
	case f.State == StateWaiting && f.Wake.At > 0:
		return timer{at: f.Wake.At, id: f.ID}, true
	case f.State == StateAwaitingApproval:
		at := f.ApprovalDeadline()
		return timer{at: at, id: f.ID}, at != 0
	}
	return timer{}, false
}

// Update replaces a flight in the table by its new version. Either may be nil.
func (d *Due) Update(before, after *Flight) {
	if before != nil {
		if t, ok := deadlineOf(before); ok {
			d.deadlines.remove(t)
		}
	}
	if after != nil {
		if t, ok := deadlineOf(after); ok {
			d.deadlines.add(t)
		}
	}
	d.updateSaga(before, after)
	var old *job
	if before != nil && before.Place != nil {
		old = d.jobs[before.ID]
	}
	if after == nil || after.Place == nil || after.State.Terminal() || after.State == StateAbsent {
		if old != nil {
			d.take(old)
			d.leave(old)
			if d.Ended != nil && after != nil && after.State.Terminal() {
				d.Ended(old.pool.namespace, old.pool.action)
			}
		}
		return
	}
	if old != nil && old.place != *after.Place { // another generation
		d.take(old)
		d.leave(old)
		old = nil
	}
	if old == nil {
		old = d.enter(after)
	} else {
		d.take(old)
	}
	d.offer(old, after)
}

// enter gives a flight its place.
func (d *Due) enter(f *Flight) *job {
	j := &job{id: f.ID, place: *f.Place}
	namespace, action := f.Key.Namespace(), cmp.Or(f.Place.Queue.Action, f.Key.Name())
	k := poolKey{namespace, action}
	if j.pool = d.pools[k]; j.pool == nil {
		j.pool = &pool{poolKey: k, ready: btree.NewWithFreeListG(treeDegree, func(a, b *job) bool {
			return cmp.Or(cmp.Compare(b.place.Queue.Priority, a.place.Queue.Priority), a.place.compare(&b.place), bytes.Compare(a.id[:], b.id[:])) < 0
		}, d.nodes)}
		d.pools[k] = j.pool
		d.byAction.ReplaceOrInsert(j.pool)
	}
	d.jobs[j.id] = j
	d.queued[namespace]++
	if name := j.place.Queue.Lane; name != "" {
		k := laneKey{namespace, action, name}
		if j.lane = d.lanes[k]; j.lane == nil {
			j.lane = &lane{key: k, pool: j.pool, jobs: btree.NewWithFreeListG(treeDegree, before, d.nodes), open: btree.NewWithFreeListG(treeDegree, func(a, b *job) bool {
				return a.limit() < b.limit() || a.limit() == b.limit() && before(a, b)
			}, d.nodes)}
			d.lanes[k] = j.lane
		}
		j.hold(true)
		j.lane.jobs.ReplaceOrInsert(j)
		if last := j.lane.last; last != nil && before(j, last) {
			d.admit(j)
		}
		d.rebalance(j.lane)
	}
	return j
}

// leave removes a job that is over from its pool and its lane. It must not be offered.
func (d *Due) leave(j *job) {
	delete(d.jobs, j.id)
	if d.queued[j.pool.namespace]--; d.queued[j.pool.namespace] == 0 {
		delete(d.queued, j.pool.namespace)
	}
	if j.pool.states == (StateCounts{}) {
		delete(d.pools, j.pool.poolKey)
		d.byAction.Delete(j.pool)
	}
	if l := j.lane; l != nil {
		if !j.held {
			d.retract(j)
		}
		l.jobs.Delete(j)
		d.rebalance(l)
		if l.jobs.Len() == 0 {
			delete(d.lanes, l.key)
		}
	}
	j.hold(false)
}

// offer counts the job in its state and, if it may be handed out now or later, places it.
func (d *Due) offer(j *job, f *Flight) {
	j.state, j.verifying = f.State, f.Verifying()
	j.pool.states[j.state]++
	if j.busy = f.Holder() != nil; j.busy {
		j.pool.busy++
	}
	if FailingAttempt(f) != nil {
		if j.pool.failed == nil {
			j.pool.failed = btree.NewWithFreeListG(treeDegree, before, d.nodes)
		}
		j.pool.failed.ReplaceOrInsert(j)
	}
	if j.lane != nil && j.state == StateInDoubt && !j.held {
		j.lane.doubts++
	}
	if j.lane != nil {
		j.lane.updateStuck()
	}
	if start, ok := startOf(f); ok {
		j.start = start
		d.place(j)
	}
}

// take undoes offer.
func (d *Due) take(j *job) {
	d.unplace(j)
	j.start = timer{}
	if j.lane != nil && j.state == StateInDoubt && !j.held {
		j.lane.doubts--
	}
	if j.busy {
		j.pool.busy--
	}
	if j.pool.failed != nil {
		j.pool.failed.Delete(j)
	}
	j.pool.states[j.state]--
	j.state = StateAbsent
}

// place puts a job that is not held among the ready ones, or sets its timer.
func (d *Due) place(j *job) {
	switch {
	case j.held, j.start.id != j.id:
	case j.start.at == 0 && !j.start.holder:
		d.makeReady(j)
	default:
		d.starts.add(j.start)
	}
}

func (d *Due) unplace(j *job) {
	if j.start.id == j.id {
		d.starts.remove(j.start)
		j.pool.ready.Delete(j)
	}
}

func (d *Due) makeReady(j *job) {
	j.pool.ready.ReplaceOrInsert(j)
	if d.Ready != nil {
		d.Ready(j.pool.namespace, j.pool.action)
	}
}

// advanceStep is the maximum number of jobs that one Advance makes ready, so that a caller can release its lock between two calls.
const advanceStep = 512

// Advance makes at most advanceStep due jobs ready. more reports whether due jobs remain.
func (d *Due) Advance(h *Header) (more bool) {
	due := make([]timer, 0, 16)
	for t := range d.starts.expired(h) {
		if len(due) == advanceStep {
			more = true
			break
		}
		due = append(due, t)
	}
	for _, t := range due {
		d.starts.remove(t)
		d.makeReady(d.jobs[t.id])
	}
	return more
}

// NextStart is the ledger time at which Advance makes the next job ready; 0: none waits for a time.
func (d *Due) NextStart(h *Header) Time { return d.starts.next(h) }

// Overdue iterates over the flights that need a WakeUp.
func (d *Due) Overdue(h *Header) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for t := range d.deadlines.expired(h) {
			if !yield(t.id) {
				return
			}
		}
	}
}

// ReadyJobs iterates over the jobs of an action that can be handed out, in their order; without lookUps not over those whose
// outcome has to be looked up.
func (d *Due) ReadyJobs(namespace, action string, lookUps bool) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		if p := d.pools[poolKey{namespace, action}]; p != nil {
			p.ready.Ascend(func(j *job) bool { return j.verifying && !lookUps || yield(j.id) })
		}
	}
}

// QueuedIn is the number of jobs of a namespace that are not over.
func (d *Due) QueuedIn(namespace string) int { return d.queued[namespace] }
