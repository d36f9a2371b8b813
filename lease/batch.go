package lease

import (
	"sync"
	"time"
)

// op is a queued operation.
type op struct {
	Op
	reservation *reservation // owner of the claim; nil for a claim without a lease in this process
	done        chan error   // has room for the answer; nil: no caller waits for it
}

// compares returns the number of comparisons that the operation needs in etcd, which limits a batch. The claims of a
// local session share the comparison of their session key; claims of remote sessions rarely do.
func (o *op) compares() int {
	if o.Kind.Puts() && !o.reservation.grant.local {
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

	mu              sync.Mutex // guards the fields below, except workers
	cond            *sync.Cond // wakes workers: a batch may be ready, or the batcher was closed
	queue           []*op
	inFlightKeys    map[string]struct{} // keys of the batches in flight
	awaited         int                 // queued operations with a waiting caller
	delayElapsed    bool                // coalesceDelay has passed for the others
	delayTimer      *time.Timer         // nil, or running for coalesceDelay
	inFlightBatches int                 // batches in flight
	closed          bool
	workers         sync.WaitGroup // the worker goroutines; close waits for them
}

func newBatcher(workers, size int, commit func([]*op)) *batcher {
	b := &batcher{commit: commit, size: size, inFlightKeys: make(map[string]struct{})}
	b.cond = sync.NewCond(&b.mu)
	for range workers {
		b.workers.Go(b.worker)
	}
	return b
}

// enqueue queues operations. False: the batcher is closed.
func (b *batcher) enqueue(ops ...*op) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, ops...)
	for _, o := range ops {
		if o.done != nil {
			b.awaited++
		}
	}
	b.startDelayLocked()
	ready := b.readyLocked()
	b.mu.Unlock()
	if ready {
		b.cond.Signal()
	}
	return true
}

// startDelayLocked starts the timer after which operations without a waiting caller are sent.
func (b *batcher) startDelayLocked() {
	if len(b.queue) == 0 || b.awaited > 0 || b.delayElapsed || b.delayTimer != nil {
		return
	}
	b.delayTimer = time.AfterFunc(coalesceDelay, func() {
		b.mu.Lock()
		b.delayTimer, b.delayElapsed = nil, true
		b.mu.Unlock()
		b.cond.Signal()
	})
}

// close commits the queued operations and waits for the workers.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	if b.delayTimer != nil {
		b.delayTimer.Stop()
	}
	b.mu.Unlock()
	b.cond.Broadcast()
	b.workers.Wait()
}

func (b *batcher) worker() {
	batch := make([]*op, 0, b.size)
	keys := make([]string, 0, b.size)
	for {
		batch = b.nextBatch(batch[:0])
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
	b.inFlightBatches--
	for _, k := range keys {
		delete(b.inFlightKeys, k)
	}
	b.startDelayLocked()
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
	return len(b.queue) > 0 && b.inFlightBatches == 0 && (b.awaited > 0 || b.delayElapsed)
}

// nextBatch waits for a batch. An empty batch means that the batcher is closed and its queue empty.
func (b *batcher) nextBatch(batch []*op) []*op {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.readyLocked() {
			batch = b.fillBatchLocked(batch)
		}
		if len(batch) > 0 {
			break
		}
		if b.closed && len(b.queue) == 0 {
			return batch
		}
		b.cond.Wait()
	}
	b.inFlightBatches++
	b.delayElapsed = false
	b.startDelayLocked()
	if len(b.queue) > 0 {
		b.cond.Signal()
	}
	return batch
}

// fillBatchLocked moves operations from the queue into a batch, except those whose key is in flight.
func (b *batcher) fillBatchLocked(batch []*op) []*op {
	n, skipped, cost := 0, 0, 0
	for ; n < len(b.queue) && cost < b.size; n++ {
		o := b.queue[n]
		if _, busy := b.inFlightKeys[o.Key]; busy {
			b.queue[skipped] = o
			skipped++
			continue
		}
		b.inFlightKeys[o.Key] = struct{}{}
		batch = append(batch, o)
		cost += o.compares()
		if o.done != nil {
			b.awaited--
		}
	}
	rest := skipped + copy(b.queue[skipped:], b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	return batch
}
