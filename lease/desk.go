package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// Config is what a Desk is made of.
type Config struct {
	Registry   Registry
	Guard      Guard
	Deployment string // id of the deployment; required
	Boot       Boot   // this life of the process; required, never used twice
	Node       string // name of this node; sessions kept by its earlier lives are ended at start. "": nobody's
	Events     Events
	Now        func() Instant // nil: Now

	Lanes         int           // batches on their way at once; 0: DefaultLanes
	BatchSize     int           // comparisons in a batch; 0: DefaultBatchSize
	CommitTimeout time.Duration // patience with one batch; 0: 3 s
	Patrol        time.Duration // period of looking after everything; 0: 2 s
	Pool          int           // sessions granted ahead for remote callers; 0: 8, negative: none
}

// The size of the group commit, by measurement.
const (
	DefaultLanes     = 3
	DefaultBatchSize = 100
	MaxBatchSize     = 1000
)

// Desk gives out sessions: it implements Service and Remover over a Registry. All rules of leases are here, the
// Registry only stores.
type Desk struct {
	cfg     Config
	guard   *guard
	slots   slots
	batch   *batcher
	strays  strays
	pending pending // releases that were asked for and are not done
	nonce   atomic.Uint64
	life    context.Context // of keepers, patrol and pool; ends with Close
	endLife context.CancelFunc
	closing <-chan struct{} // that of life
	work    sync.WaitGroup  // who lives by it

	mu     sync.Mutex
	closed bool
	terms  map[*term]struct{}
	remote map[flight.SessionID]*session
	kept   map[*session]struct{}
	redo   []*op // releases that failed, for the next round
	pool   pool
}

var (
	_ Service = (*Desk)(nil)
	_ Remover = (*Desk)(nil)
)

// New opens a desk. It does not talk to the Registry yet: Ready does. Close must be called.
func New(cfg Config) (*Desk, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Desk{
		cfg:    cfg,
		terms:  make(map[*term]struct{}),
		remote: make(map[flight.SessionID]*session),
		kept:   make(map[*session]struct{}),
	}
	d.life, d.endLife = context.WithCancel(context.Background())
	d.closing = d.life.Done()
	d.slots = slots{byKey: make(map[flight.Key]*slot), closed: d.closing}
	d.guard = &guard{
		source: cfg.Guard, stamps: cfg.Registry, deployment: cfg.Deployment,
		onRefuse: d.onRefuse, onEpoch: d.onEpoch, enrolling: make(chan struct{}, 1),
	}
	d.batch = newBatcher(cfg.Lanes, cfg.BatchSize, d.carry)
	d.work.Go(d.patrol)
	return d, nil
}

func (c *Config) check() error {
	switch {
	case c.Registry == nil || c.Guard == nil:
		return &flight.InvalidError{Field: "lease", Detail: "a registry and a guard are required"}
	case c.Deployment == "" || len(c.Deployment) > MaxDeployment:
		return &flight.InvalidError{Field: "deployment", Detail: fmt.Sprintf("1 to %d bytes", MaxDeployment)}
	case c.Boot == Boot{}:
		return &flight.InvalidError{Field: "boot", Detail: "an id of this life of the process is required"}
	case len(c.Node) > MaxNode:
		return &flight.InvalidError{Field: "node", Detail: fmt.Sprintf("at most %d bytes", MaxNode)}
	case c.Lanes < 0 || c.BatchSize < 0 || c.BatchSize > MaxBatchSize:
		return &flight.InvalidError{Field: "batch", Detail: fmt.Sprintf("lanes are at least 1, a batch is 1 to %d comparisons", MaxBatchSize)}
	}
	if c.Now == nil {
		c.Now = Now
	}
	c.Lanes = orDefault(c.Lanes, DefaultLanes)
	c.BatchSize = orDefault(c.BatchSize, DefaultBatchSize)
	c.CommitTimeout = orDefault(c.CommitTimeout, 3*time.Second)
	c.Patrol = orDefault(c.Patrol, 2*time.Second)
	c.Pool = orDefault(c.Pool, 8)
	return nil
}

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Ready says whether claims can be made: nil, or why not. It asks etcd.
func (d *Desk) Ready(ctx context.Context) error { return d.guard.patrol(ctx) }

// Claims implements Service.
func (d *Desk) Claims(ctx context.Context) ([]Held, error) {
	p, err := d.guard.enter(ctx)
	if err != nil {
		return nil, err
	}
	entries, revision, err := d.cfg.Registry.List(ctx)
	if err != nil {
		return nil, unavailable("listing claims", err)
	}
	if err := d.guard.saw(p, revision); err != nil {
		return nil, err
	}
	all := make([]Held, 0, len(entries))
	for _, e := range entries {
		h, err := e.held()
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, e.Key)
		}
		all = append(all, h)
	}
	return all, nil
}

// Watch implements Service.
func (d *Desk) Watch(ctx context.Context, released func(flight.Key)) error {
	err := d.cfg.Registry.Deaths(ctx, func(keys []string) {
		for _, k := range keys {
			if key, err := flight.ParseKey(k); err == nil {
				released(key)
			}
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unavailable("watching sessions", err)
}

// Remove implements Remover.
func (d *Desk) Remove(ctx context.Context, key flight.Key, claim flight.Claim) error {
	if h := d.slots.holder(key); h != nil && h.claim == claim {
		h.giveUp(fmt.Errorf("%w: the claim was taken away", ErrLost))
	}
	return d.remove(ctx, key, claim)
}

// remove deletes a claim by the revision at which it was made, which names it in the etcd of its epoch alone: another one
// begins again. What is there of an older epoch is of this etcd, so that it may be looked at first.
func (d *Desk) remove(ctx context.Context, key flight.Key, claim flight.Claim) error {
	epoch := d.cfg.Guard.Epoch()
	if claim.Epoch != epoch {
		found, err := d.look(ctx, []string{key.String()})
		if err != nil {
			return err
		}
		if h, err := found[key.String()].held(); err != nil || h.Claim.Epoch != claim.Epoch {
			return nil
		}
	}
	o := &op{key: key, epoch: epoch, done: make(chan struct{}, 1)}
	o.Op = Op{Kind: OpRelease, Key: key.String(), Revision: claim.Revision}
	return d.commitOne(ctx, o)
}

// commitOne sends an operation that is not a claim and waits for it.
func (d *Desk) commitOne(ctx context.Context, o *op) error {
	if !d.batch.put(o) {
		return ErrClosed
	}
	select {
	case <-o.done:
		if o.err != nil {
			return unlessClassed(o.err, "removing")
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// onRefuse ends everything when nothing may be claimed any more: between a restore of etcd and the word of an operator
// nothing starts.
func (d *Desk) onRefuse(err error) {
	d.cfg.Events.refused(err)
	if err != nil {
		d.endTerms(func(*term) bool { return true }, err)
	}
}

// onEpoch voids what was claimed in older epochs.
func (d *Desk) onEpoch(epoch uint32) {
	d.endTerms(func(t *term) bool { return t.epoch < epoch }, fmt.Errorf("%w to %d", errEpoch, epoch))
}

func (d *Desk) endTerms(which func(*term) bool, cause error) {
	d.mu.Lock()
	var end []*term
	for t := range d.terms {
		if which(t) {
			end = append(end, t)
		}
	}
	d.mu.Unlock()
	for _, t := range end {
		t.end(cause)
	}
}

// Held counts the claims that this process holds, and the sessions that it keeps or renews for others.
func (d *Desk) Held() (claims, sessions int) {
	d.mu.Lock()
	terms := make([]*term, 0, len(d.terms))
	for t := range d.terms {
		terms = append(terms, t)
	}
	d.mu.Unlock()
	for _, t := range terms {
		t.mu.Lock()
		claims += len(t.holds)
		t.mu.Unlock()
	}
	return claims, len(terms)
}

// enlist takes a term into the books; not after Close.
func (d *Desk) enlist(t *term) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.terms[t] = struct{}{}
	return nil
}

// forget strikes out a term that has ended.
func (d *Desk) forget(t *term) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.terms, t)
	if s := d.remote[t.id]; s != nil && s.holds(t) {
		delete(d.remote, t.id)
	}
}

// later keeps a release that failed for the next round of the patrol.
func (d *Desk) later(o *op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.redo = append(d.redo, o)
}

// again queues the releases that failed.
func (d *Desk) again() {
	d.mu.Lock()
	redo := d.redo
	d.redo = nil
	d.mu.Unlock()
	for _, o := range redo {
		o.err = nil
		if !d.batch.put(o) {
			d.drop(o)
		}
	}
}

// jitter spreads d over 3/4 to 5/4 of itself, so that parties that were set off together part again.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
