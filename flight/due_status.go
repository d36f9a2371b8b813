package flight

import "iter"

// StateCounts is how many jobs are in each state.
type StateCounts [StateExpired + 1]int

// PoolStatus is the state of the jobs of one action in one namespace.
type PoolStatus struct {
	Namespace string
	Action    string
	States    StateCounts // jobs that are not over
	Ready     int         // can be handed out now; lanes and times hold the others
	Held      int         // their lane does not let them open
	Running   int         // a session holds them: an attempt is open, or its caller looks the effect up
	Oldest    Time        // since then the oldest ready job has been due; 0: none is ready
	Stuck     []StuckLane // at most MaxStuckLanes, those with the most jobs behind first
	Failing   int         // jobs that keep failing, which the other numbers count, too
	Failed    []ID        // the first MaxFailedJobs of them
}

// MaxFailedJobs is the number of failing jobs that the status of a pool names.
const MaxFailedJobs = 5

// FailingAttempt returns the newest attempt that has ended of a job that keeps failing, or nil for any other flight: its last three attempts that
// the retry policy counts had no effect, or its last ten, because workers give the job back unread. Attempts of unknown outcome do not
// count as failures.
func FailingAttempt(f *Flight) *Attempt {
	ended := f.Attempts
	if f.OpenAttempt() != nil {
		ended = ended[:len(ended)-1]
	}
	n := len(ended)
	for n > 0 && ended[n-1].Outcome == OutcomeNotDone && !ended[n-1].Lost {
		n--
	}
	if n = len(ended) - n; n < 3 || n < 10 && f.CountedAttempts < 3 {
		return nil
	}
	return &ended[len(ended)-1]
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

// Pools iterates over the actions that have jobs, in the order of their namespaces and names.
func (d *Due) Pools() iter.Seq[PoolStatus] { return d.PoolsFrom("", "") }

// PoolsFrom iterates as Pools does, over the actions behind the given one.
func (d *Due) PoolsFrom(namespace, action string) iter.Seq[PoolStatus] {
	return func(yield func(PoolStatus) bool) {
		from := poolKey{namespace, action}
		d.byAction.AscendGreaterOrEqual(&pool{poolKey: from}, func(p *pool) bool { return p.poolKey == from || yield(p.status()) })
	}
}

func (p *pool) status() PoolStatus {
	s := PoolStatus{Namespace: p.namespace, Action: p.action, States: p.states, Ready: p.ready.Len(), Held: p.held, Running: p.busy}
	for j, ok := p.ready.Min(); ok; j, ok = p.next(j.place.Queue.Priority) {
		if s.Oldest == 0 || j.place.Due < s.Oldest {
			s.Oldest = j.place.Due
		}
	}
	if p.failed != nil {
		s.Failing = p.failed.Len()
		p.failed.Ascend(func(j *job) bool {
			s.Failed = append(s.Failed, j.id)
			return len(s.Failed) < MaxFailedJobs
		})
	}
	if p.stuck != nil {
		p.stuck.Ascend(func(l *lane) bool {
			first, _ := l.jobs.Min()
			s.Stuck = append(s.Stuck, StuckLane{Lane: l.key.lane, Blocker: first.id, Behind: l.behind})
			return len(s.Stuck) < MaxStuckLanes
		})
	}
	return s
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
	blocker, _ := j.lane.jobs.Min()
	return blocker.id, true
}
