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
	Ledger     LedgerState
	Deployment string // id of the deployment; required
	Node       string // name of this node; a start revokes the local sessions of its earlier incarnations; "": of no node
	Events     Events
	Now        func() clock.Instant // nil: clock.Now

	Workers       int           // concurrent transactions; 0: DefaultWorkers
	BatchSize     int           // comparisons in a transaction; 0: DefaultBatchSize
	CommitTimeout time.Duration // of one transaction; 0: 3 s
	MaintainEvery time.Duration // period of maintenance; 0: 2 s
	Pool          int           // one-shot sessions created in advance; 0: 8, negative: none
}

// Workers and sizes of the group commit, chosen by measurement.
const (
	DefaultWorkers   = 3
	DefaultBatchSize = 100
	MaxBatchSize     = 1000
)

// Lessor implements Service over a Store. It has all rules of leases; the Store only stores.
//
// Lock order: session.mu, grant.mu, Lessor.mu. No lock is held during a call of the Store, of LedgerState or of Events.
type Lessor struct {
	cfg         Config
	incarnation Incarnation // of this process, stored in its session keys
	guard       *epochGuard
	batch       *batcher
	pending     pending         // requested releases that are not done
	lifetime    context.Context // of maintenance and pool; ends with Close
	endLifetime context.CancelFunc
	background  sync.WaitGroup // the goroutines of keepers, maintenance and pool; Close waits for them

	mu             sync.Mutex // guards the fields below
	closed         bool
	grants         map[flight.SessionID]*grant // trusted grants, and lost local grants with unreleased leases
	localSessions  map[*session]struct{}       // sessions with AutoRenew
	failedReleases []*op                       // failed releases, queued again by the next maintenance
	pool           pool
}

var _ Service = (*Lessor)(nil)

// New returns a Lessor and starts its goroutines. The Store is first used by Ready or maintenance. The caller must call
// Close, which waits for the goroutines.
func New(cfg Config) (*Lessor, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Lessor{cfg: cfg, grants: make(map[flight.SessionID]*grant), localSessions: make(map[*session]struct{})}
	_, _ = rand.Read(l.incarnation[:]) // never returns an error
	l.lifetime, l.endLifetime = context.WithCancel(context.Background())
	l.guard = &epochGuard{
		state: cfg.Ledger, store: cfg.Store, deployment: cfg.Deployment,
		onRefuse: l.onRefuse, onEpoch: l.onEpoch, registerToken: make(chan struct{}, 1),
	}
	l.batch = newBatcher(cfg.Workers, cfg.BatchSize, l.commit)
	l.background.Go(l.maintain)
	return l, nil
}

func (c *Config) check() error {
	switch {
	case c.Store == nil || c.Ledger == nil:
		return &flight.InvalidError{Field: "lease", Detail: "Store and Ledger are required"}
	case c.Deployment == "" || len(c.Deployment) > MaxDeployment:
		return &flight.InvalidError{Field: "deployment", Detail: fmt.Sprintf("1 to %d bytes", MaxDeployment)}
	case len(c.Node) > MaxNode:
		return &flight.InvalidError{Field: "node", Detail: fmt.Sprintf("at most %d bytes", MaxNode)}
	case c.Workers < 0 || c.BatchSize < 0 || c.BatchSize > MaxBatchSize:
		return &flight.InvalidError{Field: "batch", Detail: fmt.Sprintf("at least 1 worker, 1 to %d comparisons in a batch", MaxBatchSize)}
	}
	if c.Now == nil {
		c.Now = clock.Now
	}
	c.Workers = orDefault(c.Workers, DefaultWorkers)
	c.BatchSize = orDefault(c.BatchSize, DefaultBatchSize)
	c.CommitTimeout = orDefault(c.CommitTimeout, 3*time.Second)
	c.MaintainEvery = orDefault(c.MaintainEvery, 2*time.Second)
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
func (l *Lessor) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*l.cfg.CommitTimeout)
}

// Ready reads the guard key and returns nil if etcd accepts sessions and claims, else the error that they would get.
func (l *Lessor) Ready(ctx context.Context) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return l.guard.recheck(ctx)
}

// Counts returns, for metrics, the number of unreleased leases under local sessions, and the number of all sessions
// that are local, pooled, or remote and trusted.
func (l *Lessor) Counts() (leases, sessions int) {
	for _, g := range l.allGrants() {
		sessions++
		if g.local {
			leases += g.openLeases()
		}
	}
	return leases, sessions
}

// Close implements Service. In order: it rejects new sessions, waits for the requested releases, revokes local and
// pooled sessions, ends trust in remote sessions without revoking them, and waits for the goroutines.
//
// If the process dies during Close, the remaining sessions expire and their claims end with them.
func (l *Lessor) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.endLifetime()
	locals, pooled := l.localSessions, l.pool.ready
	l.localSessions, l.pool.ready = nil, nil
	l.mu.Unlock()

	errs := []error{l.drainReleases(ctx)}
	for s := range locals {
		errs = append(errs, s.Close(ctx))
	}
	for _, s := range pooled {
		errs = append(errs, s.Close(ctx))
	}
	for _, g := range l.allGrants() {
		g.endTrust(ErrClosed)
	}
	l.batch.close()
	l.background.Wait()
	return errors.Join(errs...)
}

// drainReleases waits until all requested releases are done, and repeats failed ones.
func (l *Lessor) drainReleases(ctx context.Context) error {
	for {
		l.retryReleases()
		round, cancel := context.WithTimeout(ctx, l.cfg.MaintainEvery)
		err := l.pending.wait(round)
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
func (l *Lessor) onRefuse(err error) {
	if f := l.cfg.Events.EtcdRefused; f != nil {
		f(err)
	}
	if err == nil {
		return
	}
	for _, g := range l.allGrants() {
		g.endTrust(err)
	}
}

// onEpoch ends trust in sessions of older epochs.
func (l *Lessor) onEpoch(epoch uint32) {
	for _, g := range l.allGrants() {
		if g.ref.Epoch < epoch {
			g.endTrust(fmt.Errorf("%w to %d", errEpoch, epoch))
		}
	}
}

func (l *Lessor) allGrants() []*grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*grant, 0, len(l.grants))
	for _, g := range l.grants {
		all = append(all, g)
	}
	return all
}

func (l *Lessor) find(id flight.SessionID) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants[id]
}

// register adds a new grant. It returns ErrClosed after Close.
func (l *Lessor) register(g *grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.grants[g.ref.ID] = g
	return nil
}

// registerRemote adds the grant of a remote session that was found in etcd and returns its session. If a concurrent
// call has added a trusted grant of the same id, it discards g and returns the session of that grant.
func (l *Lessor) registerRemote(g *grant) (Session, error) {
	l.mu.Lock()
	old, closed := l.grants[g.ref.ID], l.closed
	if old == nil || old.trust() <= 0 {
		old = nil
		if !closed {
			l.grants[g.ref.ID] = g
		}
	}
	l.mu.Unlock()
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
func (l *Lessor) unregister(g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grants[g.ref.ID] == g {
		delete(l.grants, g.ref.ID)
	}
}
