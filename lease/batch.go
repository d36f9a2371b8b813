package lease

import (
	"sync"
	"time"
)

// op is a queued operation.
type op struct {
	Op
	lease *reservation // owner of the claim; nil for a claim without a lease in this process
	done  chan error   // has room for the answer; nil: no caller waits for it
}

// compares returns the number of comparisons that the operation needs in etcd, which limits a batch. The claims of a
// local session share the comparison of their marker; claims of remote sessions rarely do.
func (o *op) cost() int {
	if o.Kind.Puts() && !o.lease.grant.kept {
		return 2
	}
	return 1
}

// coalesceDelay is how long an operation without a waiting caller is delayed, to share a transaction with a later one.
// A release that was sent at once would delay the next claim by one write.
const coalesceDelay = 2 * time.Millisecond

// batcher is the group commit: operations that are queued while earlier batches are in flight are sent together.
// Operations of one key are sent one at a time, in the order of the queue: etcd accepts each key once in a transaction,
// and a release must not overtake the claim before it.
type batcher struct {
	commit func(batch []*op) // called by workers without mu
	size   int

	mu       sync.Mutex // guards the fields below, except workers
	cond     *sync.Cond // wakes workers: a batch may be ready, or the batcher was closed
	queue    []*op
	onTheWay map[string]struct{} // keys of the batches in flight
	urgent   int                 // queued operations with a waiting caller
	overdue  bool                // coalesceDelay has passed for the others
	alarm    *time.Timer         // nil, or running for coalesceDelay
	inFlight int                 // batches in flight
	closed   bool
	lanes    sync.WaitGroup // the worker goroutines; close waits for them
}

func newBatcher(lanes, size int, commit func([]*op)) *batcher {
	b := &batcher{commit: commit, size: size, onTheWay: make(map[string]struct{})}
	b.cond = sync.NewCond(&b.mu)
	for range lanes {
		b.lanes.Go(b.lane)
	}
	return b
}

// enqueue queues operations. False: the batcher is closed.
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

// startDelayLocked starts the timer after which operations without a waiting caller are sent.
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

// close commits the queued operations and waits for the workers.
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
		b.cond.Broadcast() // workers may wait for these keys
	}
}

// readyLocked reports whether to send a batch now. Without a batch in flight, a single operation with a waiting caller
// is sent at once. During one, a batch needs a quarter of the maximum size, because small batches cost as much as large
// ones.
func (b *batcher) readyLocked() bool {
	if len(b.queue) >= b.size/4 || b.closed {
		return len(b.queue) > 0
	}
	return len(b.queue) > 0 && b.inFlight == 0 && (b.urgent > 0 || b.overdue)
}

// nextBatch waits for a batch. An empty batch means that the batcher is closed and its queue empty.
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

// fillBatchLocked moves operations from the queue into a batch, except those whose key is in flight.
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
