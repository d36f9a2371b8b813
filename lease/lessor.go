package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Config is what a Lessor is made of.
type Config struct {
	Store      Store
	Guard      Guard
	Deployment string // id of the deployment; required
	Node       string // name of this node; sessions kept by its earlier lives are ended at start. "": nobody's
	Events     Events
	Now        func() Instant // nil: Now

	Lanes         int           // transactions on their way at once; 0: DefaultLanes
	BatchSize     int           // comparisons in a transaction; 0: DefaultBatchSize
	CommitTimeout time.Duration // patience with one transaction; 0: 3 s
	Maintain      time.Duration // period of what no caller waits for; 0: 2 s
	Pool          int           // one-shot sessions made ahead; 0: 8, negative: none
}

// The size of the group commit, by measurement.
const (
	DefaultLanes     = 3
	DefaultBatchSize = 100
	MaxBatchSize     = 1000
)

// Lessor implements Service over a Store. All rules of leases are here, the Store only stores.
type Lessor struct {
	cfg         Config
	incarnation Incarnation // of this process, in the markers that it writes
	guard       *guard
	batch       *batcher
	pending     pending         // releases that were asked for and are not done
	life        context.Context // of maintenance and pool; ends with Close
	endLife     context.CancelFunc
	work        sync.WaitGroup // keepers, maintenance, pool

	mu      sync.Mutex
	closed  bool
	grants  map[flight.SessionID]*grant // trusted ones, and lost ones that are in use
	kept    map[*session]struct{}
	retries []*op // releases that failed, for the next round
	pool    pool
}

var _ Service = (*Lessor)(nil)

// New makes a Lessor. It does not use the Store yet: Ready does. Close must be called.
func New(cfg Config) (*Lessor, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Lessor{cfg: cfg, grants: make(map[flight.SessionID]*grant), kept: make(map[*session]struct{})}
	_, _ = rand.Read(d.incarnation[:]) // it never fails: it ends the program first
	d.life, d.endLife = context.WithCancel(context.Background())
	d.guard = &guard{
		ledger: cfg.Guard, store: cfg.Store, deployment: cfg.Deployment,
		onRefuse: d.onRefuse, onEpoch: d.onEpoch, registering: make(chan struct{}, 1),
	}
	d.batch = newBatcher(cfg.Lanes, cfg.BatchSize, d.commit)
	d.work.Go(d.maintain)
	return d, nil
}

func (c *Config) check() error {
	switch {
	case c.Store == nil || c.Guard == nil:
		return &flight.InvalidError{Field: "lease", Detail: "a store and a guard are required"}
	case c.Deployment == "" || len(c.Deployment) > MaxDeployment:
		return &flight.InvalidError{Field: "deployment", Detail: fmt.Sprintf("1 to %d bytes", MaxDeployment)}
	case len(c.Node) > MaxNode:
		return &flight.InvalidError{Field: "node", Detail: fmt.Sprintf("at most %d bytes", MaxNode)}
	case c.Lanes < 0 || c.BatchSize < 0 || c.BatchSize > MaxBatchSize:
		return &flight.InvalidError{Field: "batch", Detail: fmt.Sprintf("at least 1 lane, 1 to %d comparisons in a batch", MaxBatchSize)}
	}
	if c.Now == nil {
		c.Now = Now
	}
	c.Lanes = orDefault(c.Lanes, DefaultLanes)
	c.BatchSize = orDefault(c.BatchSize, DefaultBatchSize)
	c.CommitTimeout = orDefault(c.CommitTimeout, 3*time.Second)
	c.Maintain = orDefault(c.Maintain, 2*time.Second)
	c.Pool = orDefault(c.Pool, 8)
	return nil
}

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// bounded bounds one call, which may be several requests: an answer that was lost on its way never comes.
func (d *Lessor) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*d.cfg.CommitTimeout)
}

// Ready asks etcd whether sessions and claims can be made: nil, or why not.
func (d *Lessor) Ready(ctx context.Context) error {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.guard.recheck(ctx)
}

// Held counts, for metrics, the leases of attempts under sessions that this process keeps and that are not released, and
// all sessions that it keeps, holds in its pool, or trusts for remote callers.
func (d *Lessor) Held() (leases, sessions int) {
	for _, g := range d.all() {
		sessions++
		if g.kept {
			leases += g.unreleased()
		}
	}
	return leases, sessions
}

// Close implements Service. Order: nobody new; releases that were asked for; the kept sessions and the pool, in etcd too;
// then the goroutines. Sessions of remote callers end only here, not in etcd.
func (d *Lessor) Close(ctx context.Context) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.endLife()
	kept, pooled := d.kept, d.pool.ready
	d.kept, d.pool.ready = nil, nil
	d.mu.Unlock()

	errs := []error{d.finishReleases(ctx)}
	for s := range kept {
		errs = append(errs, s.Close(ctx))
	}
	for _, s := range pooled {
		errs = append(errs, s.Close(ctx))
	}
	for _, g := range d.all() {
		g.end(ErrClosed)
	}
	d.batch.close()
	d.work.Wait()
	return errors.Join(errs...)
}

// finishReleases waits until the releases that were asked for are done, and repeats those that fail.
func (d *Lessor) finishReleases(ctx context.Context) error {
	for {
		d.retryReleases()
		round, cancel := context.WithTimeout(ctx, d.cfg.Maintain)
		err := d.pending.wait(round)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return unavailable("waiting for releases", context.Cause(ctx))
		}
	}
}

// onRefuse ends all trust when etcd is refused: between a restore of etcd and the word of an operator nothing starts.
func (d *Lessor) onRefuse(err error) {
	d.cfg.Events.refused(err)
	if err == nil {
		return
	}
	for _, g := range d.all() {
		g.end(err)
	}
}

// onEpoch ends trust in the sessions of older epochs.
func (d *Lessor) onEpoch(epoch uint32) {
	for _, g := range d.all() {
		if g.ref.Epoch < epoch {
			g.end(fmt.Errorf("%w to %d", errEpoch, epoch))
		}
	}
}

func (d *Lessor) all() []*grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*grant, 0, len(d.grants))
	for _, g := range d.grants {
		all = append(all, g)
	}
	return all
}

func (d *Lessor) find(id flight.SessionID) *grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.grants[id]
}

// register makes a grant known by its id, in place of one that was found in etcd before; not after Close.
func (d *Lessor) register(g *grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.grants[g.ref.ID] = g
	return nil
}

// adopt registers a remote caller's grant that was found in etcd, and returns its session; or that of another caller who
// found it at the same time.
func (d *Lessor) adopt(g *grant) (Session, error) {
	d.mu.Lock()
	old, closed := d.grants[g.ref.ID], d.closed
	if old == nil || old.trust() <= 0 {
		old = nil
		if !closed {
			d.grants[g.ref.ID] = g
		}
	}
	d.mu.Unlock()
	switch {
	case closed:
		g.discard(ErrClosed)
		return nil, ErrClosed
	case old != nil:
		g.discard(ErrClosed)
		return old.session, nil
	}
	return g.session, nil
}

// unregister forgets a grant that has ended.
func (d *Lessor) unregister(g *grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.grants[g.ref.ID] == g {
		delete(d.grants, g.ref.ID)
	}
}
