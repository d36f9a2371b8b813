package lease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// An op on its way has one waiter at most. Whoever moves its state first decides what becomes of the answer.
const (
	opWaiting int32 = iota
	opAnswered
	opDeserted // its caller went away; the lane cleans up behind it
)

// op is an Op with its way back.
type op struct {
	Op
	key   flight.Key
	term  *term
	nonce uint64
	hold  *hold  // of a release
	epoch uint32 // of a release: in whose etcd its revision names a claim
	owned bool   // it owns the turn on its key when nobody waits for it
	state atomic.Int32
	done  chan struct{}
	err   error
}

// cost is how many comparisons the operation needs in etcd, which bounds a batch: claims of a session kept here share
// the comparison of their marker, those of remote callers rarely do.
func (o *op) cost() int {
	if o.Kind == OpClaim && !o.term.kept {
		return 2
	}
	return 1
}

// linger is how long an operation that nobody waits for may wait for company. A release that went out at once would
// stand in the way of the claim that comes right behind it, for as long as one write takes.
const linger = 2 * time.Millisecond

// batcher is the group commit: whatever was queued while the batches before were on their way goes out together.
// Queue and lanes; the lanes are goroutines, and close waits for them.
type batcher struct {
	carry func(batch []*op)
	size  int

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []*op
	urgent  int  // queued operations that somebody waits for
	overdue bool // the others have waited long enough
	alarm   *time.Timer
	flying  int // batches on their way
	closed  bool
	lanes   sync.WaitGroup
}

func newBatcher(lanes, size int, carry func([]*op)) *batcher {
	b := &batcher{carry: carry, size: size}
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
		if o.awaited() {
			b.urgent++
		}
	}
	b.lingerLocked()
	ready := b.readyLocked()
	b.mu.Unlock()
	if ready {
		b.cond.Signal()
	}
	return true
}

// awaited reports whether somebody waits for the operation.
func (o *op) awaited() bool { return o.Kind == OpClaim || o.done != nil }

// lingerLocked sees to it that operations that nobody waits for go out even if nothing else comes.
func (b *batcher) lingerLocked() {
	if len(b.queue) == 0 || b.urgent > 0 || b.overdue || b.alarm != nil {
		return
	}
	b.alarm = time.AfterFunc(linger, func() {
		b.mu.Lock()
		b.alarm, b.overdue = nil, true
		b.mu.Unlock()
		b.cond.Signal()
	})
}

// close carries what is queued and waits for the lanes.
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
	for {
		batch = b.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		b.carry(batch)
		clear(batch)
		b.landed()
	}
}

func (b *batcher) landed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying--
	b.lingerLocked()
}

// readyLocked: an idle batcher sends at once whatever there is, if anybody waits for any of it; beside a batch on its
// way only one worth its while goes out, else many small ones would follow each other and each would pay for itself.
func (b *batcher) readyLocked() bool {
	if len(b.queue) >= b.size/4 {
		return true
	}
	return len(b.queue) > 0 && b.flying == 0 && (b.urgent > 0 || b.overdue)
}

// take waits for work. An empty batch says that there will be none any more.
func (b *batcher) take(batch []*op) []*op {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.readyLocked() && !b.closed {
		b.cond.Wait()
	}
	n, kept, cost, loose := 0, 0, 0, false
	for ; n < len(b.queue) && cost < b.size; n++ {
		o := b.queue[n]
		loose = loose || o.loose()
		if loose && stands(batch, o) {
			b.queue[kept] = o // for the next batch: etcd takes each key only once
			kept++
			continue
		}
		batch = append(batch, o)
		cost += o.cost()
		if o.awaited() {
			b.urgent--
		}
	}
	rest := kept + copy(b.queue[kept:], b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	if len(batch) > 0 {
		b.flying++
	}
	b.overdue = false
	b.lingerLocked()
	if rest > 0 {
		b.cond.Signal()
	}
	return batch
}

// loose reports whether the operation goes without the turn on its key, so that another one may be queued beside it.
func (o *op) loose() bool { return o.Kind == OpRelease && !o.owned }

func stands(batch []*op, o *op) bool {
	return slices.ContainsFunc(batch, func(p *op) bool { return p.Kind != OpRetire && p.Key == o.Key })
}

// carry takes one batch to etcd and gives the answers out. It is the only place from which claims are made.
//
// If the process dies here, claims of it may stand in etcd that no process owns; they end with their etcd lease.
func (d *Desk) carry(batch []*op) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
	defer cancel()
	p, err := d.guard.enter(ctx)
	if err != nil {
		d.failAll(batch, err)
		return
	}
	send := make([]*Op, 0, len(batch))
	for _, o := range batch {
		if o.Kind == OpClaim && !d.mayClaim(o, p) || o.Kind == OpRelease && !mayRelease(o, p) {
			d.settle(o)
			continue
		}
		send = append(send, &o.Op)
		batch[len(send)-1] = o
	}
	batch = batch[:len(send)]
	if len(batch) == 0 {
		return
	}
	began := time.Now()
	revision, err := d.cfg.Registry.Commit(ctx, p.stamp, send)
	d.cfg.Events.committed(len(batch), time.Since(began), err)
	d.answer(ctx, p, batch, revision, err)
}

// mayClaim drops claims that nobody wants any more, or that stand on a session of an older epoch.
func (d *Desk) mayClaim(o *op, p pass) bool {
	switch {
	case o.state.Load() == opDeserted:
		o.err = ErrReleased
	case !o.term.alive():
		o.err = o.term.why()
	case o.term.epoch != p.stamp.Epoch:
		o.term.end(ErrLost)
		o.err = ErrLost
	default:
		return true
	}
	return false
}

// mayRelease drops releases of another epoch: in an etcd that took the place of a lost one their revision is that of
// somebody else's claim. What an older one left there ends with its session, which nobody renews.
func mayRelease(o *op, p pass) bool {
	if o.epoch == p.stamp.Epoch {
		return true
	}
	if o.term == nil {
		o.err = unavailable("removing: the lease epoch has just risen", nil) // who removes looks again
	}
	return false
}

// answer gives out what a batch brought.
func (d *Desk) answer(ctx context.Context, p pass, batch []*op, revision int64, err error) {
	switch {
	case err == nil:
		if err = d.guard.saw(p, revision); err != nil {
			d.failAll(batch, err)
			return
		}
		for _, o := range batch {
			if o.Kind == OpClaim {
				o.Revision = revision
			}
			d.settle(o)
		}
	case isStamp(err):
		if again := d.guard.relook(ctx); again != nil {
			err = again
		}
		d.failAll(batch, unlessClassed(err, "the guard key has just changed"))
	default:
		d.resolve(batch, err)
	}
}

// failAll answers a batch of which nothing happened.
func (d *Desk) failAll(batch []*op, err error) {
	for _, o := range batch {
		o.err, o.Done = err, false
		d.settle(o)
	}
}

// settle gives one answer to whom it concerns.
func (d *Desk) settle(o *op) {
	if o.Kind != OpClaim {
		d.settleRelease(o)
		return
	}
	if o.state.CompareAndSwap(opWaiting, opAnswered) {
		o.done <- struct{}{}
		return
	}
	// Nobody waits: the turn on the key belongs to the op.
	if o.err == nil && o.Done {
		d.cfg.Events.stray(o.key, o.claim())
		d.takeBack(o)
		return
	}
	d.slots.leave(o.key)
}

func (o *op) claim() flight.Claim {
	return flight.Claim{Epoch: o.term.epoch, Revision: o.Revision, Session: o.term.id}
}

// settleRelease frees the slot of a key that was let go, or keeps the release for another try.
func (d *Desk) settleRelease(o *op) {
	if o.err != nil && (o.term == nil || o.term.alive() || o.term.silent()) && o.done == nil {
		d.later(o)
		return
	}
	if o.owned {
		d.slots.leave(o.key)
	}
	if o.hold != nil && o.err == nil {
		d.cfg.Events.released(o.key, o.hold.claim)
	}
	if o.done != nil {
		o.done <- struct{}{}
		return
	}
	d.pending.done()
}

// letGo queues the release of a hold that is over; its turn on the key lasts until that is done.
func (d *Desk) letGo(h *hold) {
	d.slots.vacate(h.key)
	o := &op{key: h.key, term: h.term, hold: h, epoch: h.claim.Epoch, owned: true}
	o.Op = Op{Kind: OpRelease, Key: h.key.String(), Revision: h.claim.Revision}
	d.release(o)
}

// letGoLost queues the release of a hold that was lost before. The turn on its key has gone to others since.
func (d *Desk) letGoLost(h *hold) {
	o := &op{key: h.key, term: h.term, hold: h, epoch: h.claim.Epoch}
	o.Op = Op{Kind: OpRelease, Key: h.key.String(), Revision: h.claim.Revision}
	d.release(o)
}

// takeBack queues the release of a claim that landed when its caller had left.
func (d *Desk) takeBack(claim *op) {
	o := &op{key: claim.key, term: claim.term, epoch: claim.term.epoch, owned: true}
	o.Op = Op{Kind: OpRelease, Key: claim.Key, Revision: claim.Revision}
	d.release(o)
}

func (d *Desk) release(o *op) {
	d.pending.add()
	if !d.batch.put(o) {
		d.drop(o)
	}
}

// drop gives up a release, because the desk is closed: the key goes with its etcd lease.
func (d *Desk) drop(o *op) {
	if o.owned {
		d.slots.leave(o.key)
	}
	d.pending.done()
}
