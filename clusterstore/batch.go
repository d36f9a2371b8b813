package clusterstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// maxInFlight limits how many batches raft has at once. Raft syncs waiting entries together, so more of them cost no
// more syncs; they keep log, FSM and callers busy at the same time. Measured with 256 callers: 8 is a fifth faster
// than 2, and 16 is no faster than 8.
const maxInFlight = 8

// While eagerInFlight batches are in flight, another one is sent only when minQueued proposals are queued. Every
// batch costs raft some thirty objects and a pass of its loop, so small batches would delay larger ones.
const (
	eagerInFlight = 2
	minQueued     = 16
)

// proposal is one queued command and the channel for its result.
type proposal struct {
	command  flight.Command
	data     []byte
	together int          // how many proposals behind it in the queue have to be in the same batch
	reply    flight.Reply // set by the FSM before done receives
	done     chan error   // buffered; receives one value
	batched  bool         // guarded by batcher.mu; true: it can no longer be cancelled
}

func newProposal(c flight.Command, data []byte) *proposal {
	return &proposal{command: c, data: data, done: make(chan error, 1)}
}

// result returns the reply of a proposal that ended with err. The reply may be read only after the FSM has set it.
func (p *proposal) result(err error) (flight.Reply, error) {
	if err != nil {
		return flight.Reply{}, err
	}
	return p.reply, nil
}

// batch is one log entry and the proposals in it.
type batch struct {
	stamp     stamp
	data      []byte
	proposals []*proposal
	completed atomic.Bool
}

// batchFromLog returns a batch that another process encoded. No caller of this process waits for it.
func batchFromLog(at stamp, commands []flight.Command) *batch {
	b := &batch{stamp: at, proposals: make([]*proposal, len(commands))}
	for i, c := range commands {
		b.proposals[i] = &proposal{command: c}
	}
	return b
}

// complete answers every caller of the batch, once. Later calls do nothing. A nil err means that the effects are
// visible to readers.
func (b *batch) complete(err error) {
	if !b.completed.CompareAndSwap(false, true) {
		return
	}
	for _, p := range b.proposals {
		p.done <- err
	}
}

// pendingBatches holds the batches that this process gave to raft. Raft hands a leader's own entries to the FSM with
// the same byte slice that was proposed, so the FSM finds the batch here by address and need not decode it.
type pendingBatches struct {
	mu      sync.Mutex
	batches map[*byte]*batch // by the address of their data; guarded by mu
}

func (p *pendingBatches) add(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batches == nil {
		p.batches = make(map[*byte]*batch)
	}
	p.batches[&b.data[0]] = b
}

// remove returns the batch with this very byte slice and forgets it, or nil if another process proposed it or its
// callers have been answered.
func (p *pendingBatches) remove(data []byte) *batch {
	if len(data) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.batches[&data[0]]
	if b != nil {
		delete(p.batches, &data[0])
	}
	return b
}

// failAll completes all batches with an error: raft has stopped and will not answer them. They may be in the log.
func (p *pendingBatches) failAll(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		b.complete(why)
	}
	clear(p.batches)
}

// batcher implements group commit. Commands that are proposed while earlier batches are in flight share the next
// batch: one write and one sync, however many commands it holds.
type batcher struct {
	raft    *raft.Raft
	now     func() stamp
	pending *pendingBatches

	mu       sync.Mutex // guards the fields below
	queue    []*proposal
	inFlight int // goroutines of run
	closed   bool
	runners  sync.WaitGroup // goroutines of run; close waits for them
}

// propose proposes one command and waits for its result. errors.go lists the classes of errors.
func (b *batcher) propose(ctx context.Context, c flight.Command, data []byte) (flight.Reply, error) {
	p := newProposal(c, data)
	if err := b.enqueue(p); err != nil {
		return flight.Reply{}, err
	}
	return b.await(ctx, p)
}

// await waits for the result of a queued proposal. When ctx ends, a proposal that is still queued is cancelled
// (ErrUnavailable); one that was sent to raft has an unknown result (effect.ErrAmbiguous).
func (b *batcher) await(ctx context.Context, p *proposal) (flight.Reply, error) {
	select {
	case err := <-p.done:
		return p.result(err)
	case <-ctx.Done():
	}
	if b.cancel(p) {
		return flight.Reply{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	select {
	case err := <-p.done: // the result arrived together with the end of ctx
		return p.result(err)
	default:
		return flight.Reply{}, ambiguous(context.Cause(ctx))
	}
}

// enqueue queues proposals, with no other ones between them.
func (b *batcher) enqueue(all ...*proposal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.queue = append(b.queue, all...)
	if b.inFlight < eagerInFlight || b.inFlight < maxInFlight && len(b.queue) >= minQueued {
		b.inFlight++
		b.runners.Add(1)
		go b.run()
	}
	return nil
}

// cancel removes a proposal, and those that have to be in its batch, from the queue. It returns false when the proposal is already in a batch.
func (b *batcher) cancel(p *proposal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.batched {
		return false
	}
	for i, queued := range b.queue {
		if queued == p {
			b.queue = append(b.queue[:i:i], b.queue[i+1+p.together:]...)
			return true
		}
	}
	return false
}

// run sends batches to raft until the queue is empty. Raft answers every ApplyLog: with the result, or with an error
// when this node loses the leadership or raft stops. close waits for run.
//
// If the process dies after ApplyLog, the entry may be in the log, and no caller was answered.
func (b *batcher) run() {
	defer b.runners.Done()
	for {
		next := b.nextBatch()
		if next == nil {
			return
		}
		b.pending.add(next)
		err := b.raft.ApplyLog(raft.Log{Data: next.data}, 0).Error()
		b.pending.remove(next.data)
		next.complete(classifyRaftError(err)) // on success the FSM has completed it already
	}
}

// nextBatch encodes as many queued proposals as fit into one entry. nil: the queue is empty, and the caller of
// nextBatch must end.
func (b *batcher) nextBatch() *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, entryFixed
	for n < len(b.queue) {
		end, more := n+1+b.queue[n].together, 0
		for _, p := range b.queue[n:end] {
			more += commandPrefix + len(p.data)
		}
		if n > 0 && size+more > maxEntry {
			break
		}
		size += more
		n = end
	}
	if n == 0 {
		b.inFlight--
		return nil
	}
	next := &batch{stamp: b.now(), proposals: b.queue[:n:n]}
	b.queue = b.queue[n:]
	next.data = appendHeader(make([]byte, 0, size), next.stamp)
	for _, p := range next.proposals {
		p.batched = true
		next.data = appendCommand(next.data, p.data)
	}
	return next
}

// close rejects new proposals and waits until those in flight have ended, at most until ctx ends.
func (b *batcher) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	drained := make(chan struct{})
	go func() {
		b.runners.Wait()
		close(drained)
	}()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("clusterstore: close: proposals are still in flight: %w", context.Cause(ctx))
	}
}
