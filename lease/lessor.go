package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// Config configures a Lessor.
type Config struct {
	Store      Store
	Guard      Guard
	Deployment string // id of the deployment; required
	Node       string // name of this node; a start revokes the local sessions of earlier incarnations. "": revokes none
	Events     Events
	Now        func() clock.Moment // nil: clock.Now

	Lanes         int           // concurrent transactions; 0: DefaultWorkers
	BatchSize     int           // comparisons in a transaction; 0: DefaultBatchSize
	CommitTimeout time.Duration // of one transaction; 0: 3 s
	Maintain      time.Duration // period of maintenance; 0: 2 s
	Pool          int           // one-shot sessions created in advance; 0: 8, negative: none
}

// Workers and sizes of the group commit, chosen by measurement.
const (
	DefaultLanes     = 3
	DefaultBatchSize = 100
	MaxBatchSize     = 1000
)

// Lessor implements Service over a Store. It has all rules of leases; the Store only stores.
//
// Lock order: session.mu, grant.mu, Lessor.mu. No lock is held during a call of the Store, of LedgerState or of Events.
type Lessor struct {
	cfg         Config
	incarnation Incarnation // of this process, stored in its markers
	guard       *guard
	batch       *batcher
	pending     pending         // requested releases that are not done
	life        context.Context // of maintenance and pool; ends with Close
	endLife     context.CancelFunc
	work        sync.WaitGroup // the goroutines of keepers, maintenance and pool; Close waits for them

	mu      sync.Mutex // guards the fields below
	closed  bool
	grants  map[flight.SessionID]*grant // trusted grants, and lost local grants with unreleased leases
	kept    map[*session]struct{}       // sessions with AutoRenew
	retries []*op                       // failed releases, queued again by the next maintenance
	pool    pool
}

var _ Service = (*Lessor)(nil)

// New returns a Lessor and starts its goroutines. The Store is first used by Ready or maintenance. The caller must call
// Close, which waits for the goroutines.
func New(cfg Config) (*Lessor, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Lessor{cfg: cfg, grants: make(map[flight.SessionID]*grant), kept: make(map[*session]struct{})}
	_, _ = rand.Read(d.incarnation[:]) // never returns an error
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
		return &flight.InvalidError{Field: "batch", Detail: fmt.Sprintf("at least 1 worker, 1 to %d comparisons in a batch", MaxBatchSize)}
	}
	if c.Now == nil {
		c.Now = clock.Now
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

// bounded adds a timeout for one call of up to three requests: a lost answer never arrives.
func (d *Lessor) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*d.cfg.CommitTimeout)
}

// Ready reads the guard key and returns nil if etcd accepts sessions and claims, else the error that they would get.
func (d *Lessor) Ready(ctx context.Context) error {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.guard.recheck(ctx)
}

// Counts returns, for metrics, the number of unreleased leases under local sessions, and the number of all sessions
// that are local, pooled, or remote and trusted.
func (d *Lessor) Held() (leases, sessions int) {
	for _, g := range d.all() {
		sessions++
		if g.kept {
			leases += g.unreleased()
		}
	}
	return leases, sessions
}

// Close implements Service. In order: it rejects new sessions, waits for the requested releases, revokes local and
// pooled sessions, ends trust in remote sessions without revoking them, and waits for the goroutines.
//
// If the process dies during Close, the remaining sessions expire and their claims end with them.
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

// drainReleases waits until all requested releases are done, and repeats failed ones.
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
			return unavailable("wait for releases", context.Cause(ctx))
		}
	}
}

// onRefuse ends all trust when etcd is rejected: after a restore of etcd no effect starts before an operator has
// decided.
func (d *Lessor) onRefuse(err error) {
	d.cfg.Events.refused(err)
	if err == nil {
		return
	}
	for _, g := range d.all() {
		g.end(err)
	}
}

// onEpoch ends trust in sessions of older epochs.
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

// register adds a new grant. ErrClosed after Close.
func (d *Lessor) register(g *grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.grants[g.ref.ID] = g
	return nil
}

// registerRemote adds the grant of a remote session that was found in etcd and returns its session. If a concurrent
// call has added a trusted grant of the same id, it discards g and returns the session of that grant.
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

// unregister removes a grant that has ended.
func (d *Lessor) unregister(g *grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.grants[g.ref.ID] == g {
		delete(d.grants, g.ref.ID)
	}
}
