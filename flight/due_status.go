package flight

import (
	"cmp"
	"iter"
	"slices"
)

// PoolStatus is the state of the jobs of one action in one namespace.
type PoolStatus struct {
	Namespace string
	Action    string
	States    map[State]int // jobs that are not over
	Ready     int           // can be handed out now; lanes and times hold the others
	Held      int           // their lane does not let them open
	Running   int           // a session holds them: an attempt is open, or its caller looks the effect up
	Oldest    Time          // since then the oldest ready job has been due; 0: none is ready
	Stuck     []StuckLane   // at most MaxStuckLanes, those with the most jobs behind first
}

// MaxStuckLanes is the number of stuck lanes that the status of a pool names.
const MaxStuckLanes = 5

// StuckLane is a lane whose first jobs are all in doubt, so that a person must resolve one before the jobs behind may open.
type StuckLane struct {
	Lane    string
	Blocker ID  // the first job
	Behind  int // jobs that wait
}

// Scheduled is the number of jobs that wait for a time: their first, that of a retry, or that of a look-up.
func (s *PoolStatus) Scheduled() int {
	all := 0
	for _, n := range s.States {
		all += n
	}
	return max(0, all-s.Ready-s.Held-s.Running-s.States[StateWaiting]-s.States[StateInDoubt]-s.States[StateAwaitingApproval])
}

// Pools iterates over the actions that have jobs, in no order.
func (d *Due) Pools() iter.Seq[PoolStatus] {
	return func(yield func(PoolStatus) bool) {
		for k, p := range d.pools {
			s := PoolStatus{Namespace: k.namespace, Action: k.action, States: p.states, Ready: p.ready.Len(), Held: p.held, Running: p.busy, Stuck: p.stuck()}
			for j, ok := p.ready.Min(); ok; j, ok = p.next(j.place.Queue.Priority) {
				if s.Oldest == 0 || j.place.Due < s.Oldest {
					s.Oldest = j.place.Due
				}
			}
			if !yield(s) {
				return
			}
		}
	}
}

func (p *pool) stuck() (lanes []StuckLane) {
	for j := range p.doubts {
		l := j.lane
		behind := l.jobs.Len() - len(l.open)
		if behind > 0 && l.open[0] == j && !slices.ContainsFunc(l.open, func(j *job) bool { return j.state != StateInDoubt }) {
			lanes = append(lanes, StuckLane{Lane: l.key.lane, Blocker: j.id, Behind: behind})
		}
	}
	slices.SortFunc(lanes, func(a, b StuckLane) int { return cmp.Or(cmp.Compare(b.Behind, a.Behind), cmp.Compare(a.Lane, b.Lane)) })
	return lanes[:min(len(lanes), MaxStuckLanes)]
}

// LaneJobs iterates over the jobs of a lane that are not over, in their order, and reports of each whether it may open.
func (d *Due) LaneJobs(namespace, action, name string) iter.Seq2[ID, bool] {
	return func(yield func(ID, bool) bool) {
		if l := d.lanes[laneKey{namespace, action, name}]; l != nil {
			l.jobs.Ascend(func(j *job) bool { return yield(j.id, !j.held) })
		}
	}
}

// LaneSize is the number of jobs of a lane that are not over.
func (d *Due) LaneSize(namespace, action, name string) int {
	if l := d.lanes[laneKey{namespace, action, name}]; l != nil {
		return l.jobs.Len()
	}
	return 0
}

// LaneBlocker returns the first job of the lane of a flight, if the lane does not let the flight open.
func (d *Due) LaneBlocker(id ID) (first ID, blocked bool) {
	j := d.jobs[id]
	if j == nil || !j.held {
		return ID{}, false
	}
	return j.lane.open[0].id, true
}
