package flight

import (
	"bytes"
	"cmp"
	"math"

	"github.com/google/btree"
)

type laneKey struct{ namespace, action, lane string }

// lane holds the live jobs of one lane in their order. A job may open if the number of jobs before it is less than the smallest
// limit among those jobs and its own, so a lane with limit 1 runs in order. The open jobs are the longest prefix of the lane
// that is no longer than the smallest limit in it.
type lane struct {
	key    laneKey
	pool   *pool
	jobs   *btree.BTreeG[*job]
	open   *btree.BTreeG[*job] // jobs that may open, ordered by their limit
	last   *job                // last job in open; nil if open is empty
	doubts int                 // number of jobs in open that are in doubt
	behind int                 // number of waiting jobs by which pool.stuck orders the lane; 0 if the lane is not stuck
}

func (j *job) limit() int { return int(max(1, j.place.Queue.Limit)) }

// before reports whether job a stands before job b in their lane.
func before(a, b *job) bool {
	return cmp.Or(a.place.compare(&b.place), bytes.Compare(a.id[:], b.id[:])) < 0
}

// adjacent returns the job behind l.last or, with back, the job before it. It returns nil if there is no such job.
func (l *lane) adjacent(back bool) (found *job) {
	visit := func(j *job) bool {
		if j != l.last {
			found = j
		}
		return found == nil
	}
	switch {
	case l.last == nil && !back:
		found, _ = l.jobs.Min()
	case back:
		l.jobs.DescendLessOrEqual(l.last, visit)
	default:
		l.jobs.AscendGreaterOrEqual(l.last, visit)
	}
	return found
}

// hold sets j.held and keeps the pool's number of held jobs.
func (j *job) hold(held bool) {
	switch {
	case held && !j.held:
		j.pool.held++
	case !held && j.held:
		j.pool.held--
	}
	j.held = held
}

// admit lets a job open. Every job before it in the lane must be open already.
func (d *Due) admit(j *job) {
	l := j.lane
	if l.open.ReplaceOrInsert(j); l.last == nil || before(l.last, j) {
		l.last = j
	}
	if j.state == StateInDoubt {
		l.doubts++
	}
	j.hold(false)
	d.place(j)
}

// retract undoes admit.
func (d *Due) retract(j *job) {
	l := j.lane
	if l.open.Delete(j); l.last == j {
		l.last = l.adjacent(true)
	}
	if j.state == StateInDoubt {
		l.doubts--
	}
	d.unplace(j)
	j.hold(true)
}

// rebalance restores the rule of a lane after one job was added or removed. It visits only the jobs that it admits or retracts, and
// their number is at most the limit of one job.
func (d *Due) rebalance(l *lane) {
	for {
		smallest := math.MaxInt
		if j, ok := l.open.Min(); ok {
			smallest = j.limit()
		}
		if l.open.Len() > smallest {
			d.retract(l.last)
			continue
		}
		next := l.adjacent(false)
		if next == nil || l.open.Len() >= min(smallest, next.limit()) {
			break
		}
		d.admit(next)
	}
	l.updateStuck()
}

// updateStuck adds the lane to the stuck lanes of its pool, moves it among them, or removes it.
func (l *lane) updateStuck() {
	behind := 0
	if l.doubts > 0 && l.doubts == l.open.Len() {
		behind = l.jobs.Len() - l.open.Len()
	}
	if behind == l.behind {
		return
	}
	if l.pool.stuck == nil {
		l.pool.stuck = btree.NewG(treeDegree, func(a, b *lane) bool {
			return cmp.Or(cmp.Compare(b.behind, a.behind), cmp.Compare(a.key.lane, b.key.lane)) < 0
		})
	}
	if l.behind > 0 {
		l.pool.stuck.Delete(l)
	}
	if l.behind = behind; behind > 0 {
		l.pool.stuck.ReplaceOrInsert(l)
	}
}

// LaneBlocks reports whether a flight must not open because of the jobs before it in its lane. Every node computes the same
// answer, because it depends only on the stored flights.
func (d *Due) LaneBlocks(id ID) bool {
	j := d.jobs[id]
	return j != nil && j.held
}
