package flight

import (
	"bytes"
	"cmp"
	"math"

	"github.com/google/btree"
)

type laneKey struct{ namespace, action, lane string }

// lane has the jobs of a lane that are not over, in their order. A job may open if fewer jobs stand before it than the smallest
// limit among them and its own, so a lane of limit one is worked through in order. The jobs that may open are the longest
// beginning of the lane that is no longer than its smallest limit.
type lane struct {
	key    laneKey
	pool   *pool
	jobs   *btree.BTreeG[*job]
	open   *btree.BTreeG[*job] // the jobs that may open, those with the smallest limit first
	last   *job                // the last one of them; nil if none may open
	doubts int                 // how many of them are in doubt
	behind int                 // the jobs that wait in a stuck lane, as the pool's tree knows it; 0 in a lane that is not stuck
}

func (j *job) limit() int { return int(max(1, j.place.Queue.Limit)) }

// before reports whether job a stands before job b in their lane.
func before(a, b *job) bool {
	return cmp.Or(a.place.compare(&b.place), bytes.Compare(a.id[:], b.id[:])) < 0
}

// adjacent returns the job behind the last one that may open; with back, the job before it.
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

// hold notes whether the lane of the job lets it open.
func (j *job) hold(held bool) {
	switch {
	case held && !j.held:
		j.pool.held++
	case !held && j.held:
		j.pool.held--
	}
	j.held = held
}

// admit lets a job of a lane open. The jobs before it may open already.
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

// settle lets more or fewer jobs of a lane open after one job was added or removed. Its steps are the jobs that begin or cease to be
// let open, and they are no more than a limit of the lane.
func (d *Due) settle(l *lane) {
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
	l.noteStuck()
}

// noteStuck keeps the place of the lane among the stuck lanes of its pool.
func (l *lane) noteStuck() {
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

// LaneBlocks reports whether the lane of a flight does not let it open, because others stand before it. Every node computes
// the same answer: it depends on the flights alone.
func (d *Due) LaneBlocks(id ID) bool {
	j := d.jobs[id]
	return j != nil && j.held
}
