package lease

import (
	"sync"
	"time"
)

// op is an Op on its way, and who waits for it.
type op struct {
	Op
	lease *reservation // whose claim it is; nil where the claim is not of a lease of this process
	done  chan error   // takes one answer; nil: nobody waits
}

// cost is how many comparisons the operation needs in etcd, which bounds a batch: the claims of a session kept here
// share the comparison of their marker, those of remote callers rarely do.
func (o *op) cost() int {
	if o.Kind.Puts() && !o.lease.grant.kept {
		return 2
	}
	return 1
}

// coalesceDelay is how long an operation that nobody waits for may wait for company. A release that went out at once would
// be in the way of the claim that follows at once, for as long as one write takes.
const coalesceDelay = 2 * time.Millisecond

// batcher is the group commit: the operations that were queued while the batches before were on their way go out
// together. Operations of one key go out one at a time, in the order in which they were queued: etcd takes each key
// once in a transaction, and a release must not overtake the claim before it.
//
// Its lanes are goroutines; close waits for them.
type batcher struct {
	commit func(batch []*op)
	size   int

	mu       sync.Mutex
	cond     *sync.Cond
	queue    []*op
	onTheWay map[string]struct{} // keys of the batches in flight
	urgent   int                 // queued operations that somebody waits for
	overdue  bool                // the others have waited long enough
	alarm    *time.Timer
	inFlight int // batches
	closed   bool
	lanes    sync.WaitGroup
}

func newBatcher(lanes, size int, commit func([]*op)) *batcher {
	b := &batcher{commit: commit, size: size, onTheWay: make(map[string]struct{})}
	b.cond = sync.NewCond(&b.mu)
	for range lanes {
		b.lanes.Go(b.lane)
	}
	return b
}

// put queues operations; false when the batcher is closed.
func (b *batcher) put(ops ...*op) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, ops...)
	for _, o := range ops {
		if o.done != nil {
			b.urgent++
		}
	}
	b.setAlarmLocked()
	ready := b.readyLocked()
	b.mu.Unlock()
	if ready {
		b.cond.Signal()
	}
	return true
}

// setAlarmLocked makes operations that nobody waits for go out even if nothing else comes.
func (b *batcher) setAlarmLocked() {
	if len(b.queue) == 0 || b.urgent > 0 || b.overdue || b.alarm != nil {
		return
	}
	b.alarm = time.AfterFunc(coalesceDelay, func() {
		b.mu.Lock()
		b.alarm, b.overdue = nil, true
		b.mu.Unlock()
		b.cond.Signal()
	})
}

// close commits what is queued and waits for the lanes.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	if b.alarm != nil {
		b.alarm.Stop()
	}
	b.mu.Unlock()
	b.cond.Broadcast()
	b.lanes.Wait()
}

func (b *batcher) lane() {
	batch := make([]*op, 0, b.size)
	keys := make([]string, 0, b.size)
	for {
		batch = b.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		keys = keys[:0]
		for _, o := range batch {
			keys = append(keys, o.Key)
		}
		b.commit(batch)
		clear(batch)
		b.batchDone(keys)
	}
}

func (b *batcher) batchDone(keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight--
	for _, k := range keys {
		delete(b.onTheWay, k)
	}
	b.setAlarmLocked()
	if b.closed {
		b.cond.Broadcast() // the last lanes wait for keys that were on their way
	}
}

// readyLocked: an idle batcher sends at once whatever there is, if anybody waits for any of it; beside a batch on its
// way only one worth its while goes out, else many small ones would follow each other and each would pay for itself.
func (b *batcher) readyLocked() bool {
	if len(b.queue) >= b.size/4 || b.closed {
		return len(b.queue) > 0
	}
	return len(b.queue) > 0 && b.inFlight == 0 && (b.urgent > 0 || b.overdue)
}

// take waits for a batch. An empty one says that there will be none any more.
func (b *batcher) take(batch []*op) []*op {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.readyLocked() {
			batch = b.gatherLocked(batch)
		}
		if len(batch) > 0 {
			break
		}
		if b.closed && len(b.queue) == 0 {
			return batch
		}
		b.cond.Wait()
	}
	b.inFlight++
	b.overdue = false
	b.setAlarmLocked()
	if len(b.queue) > 0 {
		b.cond.Signal()
	}
	return batch
}

// gatherLocked moves operations from the queue into a batch, and leaves those whose key is on its way.
func (b *batcher) gatherLocked(batch []*op) []*op {
	n, left, cost := 0, 0, 0
	for ; n < len(b.queue) && cost < b.size; n++ {
		o := b.queue[n]
		if _, busy := b.onTheWay[o.Key]; busy {
			b.queue[left] = o
			left++
			continue
		}
		b.onTheWay[o.Key] = struct{}{}
		batch = append(batch, o)
		cost += o.cost()
		if o.done != nil {
			b.urgent--
		}
	}
	rest := left + copy(b.queue[left:], b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	return batch
}
