package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// epochGuard rejects an etcd that knows less than the ledger, or belongs to another deployment. Its decision is the
// pure function judge. epochGuard caches the decision and reads the guard key again when it may have changed.
type epochGuard struct {
	state         LedgerState
	store         EpochStore
	deployment    string
	onRefuse      func(err error)    // called without mu: once per refusal, and with nil when it ends
	onEpoch       func(epoch uint32) // called without mu when the lease epoch was raised: older sessions are void
	registerToken chan struct{}      // has one slot: taken by the call that reads and writes the guard key

	mu         sync.Mutex // guards the fields below
	registered bool       // the guard key was read and is ours in this epoch
	epoch      uint32     // the newest epoch read from the ledger
	refusal    error      // ErrRegressed or ErrForeign; nil: etcd is not rejected
}

// permit has the conditions of one request: the guard key that it must find, and the minimum counter in its answer. It
// is created before the request is sent, so the counter in etcd is at least the ledger's record of that moment.
type permit struct {
	owner      Ownership
	minCounter uint64
}

// admit returns a permit, or the error with which etcd is rejected. It does I/O only if the guard key has not been read
// in this epoch; one call at a time reads it, and others wait.
func (g *epochGuard) admit(ctx context.Context) (permit, error) {
	if p, ok, err := g.cached(); ok || err != nil {
		return p, err
	}
	select {
	case g.registerToken <- struct{}{}:
	case <-ctx.Done():
		return permit{}, unavailable("wait to read the guard key", context.Cause(ctx))
	}
	defer func() { <-g.registerToken }()
	if p, ok, err := g.cached(); ok || err != nil {
		return p, err
	}
	return g.register(ctx)
}

// cached returns the cached decision, or false if the guard key must be read. It also notices a raise of the epoch.
func (g *epochGuard) cached() (permit, bool, error) {
	header := g.state.Header()
	epoch, known := header.LeaseEpoch, header.GuardCounter
	g.mu.Lock()
	if epoch > g.epoch {
		g.epoch, g.registered = epoch, false
		ended := g.refusal != nil
		g.refusal = nil
		g.mu.Unlock()
		g.onEpoch(epoch)
		if ended {
			g.onRefuse(nil)
		}
		return permit{}, false, nil
	}
	defer g.mu.Unlock()
	if g.refusal != nil {
		return permit{}, false, g.refusal
	}
	return permit{Ownership{g.deployment, epoch}, known}, g.registered && epoch == g.epoch, nil
}

// register compares the guard key with the ledger, and writes the key if judge says so. Several nodes may do so at
// once; a node that lost the race reads again.
//
// If the process dies before the write, the old key remains; after the write the new key is correct for all nodes.
func (g *epochGuard) register(ctx context.Context) (permit, error) {
	header := g.state.Header()
	epoch, known := header.LeaseEpoch, header.GuardCounter
	p := permit{Ownership{g.deployment, epoch}, known}
	err := g.inspect(ctx, p)
	for tries := 1; isOwnershipError(err) && tries < 3; tries++ {
		err = g.inspect(ctx, p)
	}
	if err != nil {
		g.refuse(err)
		return permit{}, ensureClass(err, "write the guard key: other nodes write it at the same time")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.epoch == epoch {
		g.registered = true
	}
	return p, nil
}

// inspect reads the guard key, judges it, and writes it if needed. *OwnershipError: another node wrote it concurrently.
func (g *epochGuard) inspect(ctx context.Context, p permit) error {
	found, err := g.store.ReadGuard(ctx)
	if err != nil {
		return unavailable("read the guard key", err)
	}
	known := p.minCounter
	if found.Owner == nil {
		known = max(known, g.state.Header().GuardCounter) // again, after the answer: if a counter was recorded since, the key must not be written
	}
	write, err := judge(found, p.owner, known)
	if err != nil || !write {
		return err
	}
	err = g.store.SetOwnership(ctx, found.Owner, p.owner)
	if err == nil || isOwnershipError(err) {
		return err
	}
	return unavailable("write the guard key", err)
}

// judge decides whether an etcd with this guard key and counter may be used, and whether the guard key must be written
// first. want is the guard key of this node's ledger, known is the counter that the ledger has recorded.
func judge(found GuardState, want Ownership, known uint64) (write bool, err error) {
	lost := func(why string) error {
		return &RegressedError{Epoch: want.Epoch, Recorded: known, Found: found.Counter, Reason: why}
	}
	switch owner := found.Owner; {
	case owner == nil && known > 0:
		return false, lost("the guard key is gone")
	case owner == nil:
		return true, nil
	case owner.Deployment != want.Deployment:
		return false, fmt.Errorf("%w: %q, want %q", ErrForeign, owner.Deployment, want.Deployment)
	case owner.Epoch > want.Epoch:
		return false, &AheadError{Ledger: want.Epoch, Etcd: owner.Epoch}
	case found.Counter < known:
		return false, lost("the counter went back")
	case owner.Epoch < want.Epoch && known > 0:
		return false, lost("the guard key has an older epoch")
	}
	return found.Owner.Epoch < want.Epoch, nil
}

// validate judges the guard key that a request with the permit has read. *OwnershipError: the guard key has changed.
func (g *epochGuard) validate(p permit, found GuardState) error {
	write, err := judge(found, p.owner, p.minCounter)
	if err == nil && write {
		err = &OwnershipError{Found: found.Owner}
	}
	if err != nil {
		g.refuse(err)
	}
	return err
}

// ownershipChanged reads the guard key again after a request has found another one. It always returns an error, because
// that request did nothing.
func (g *epochGuard) ownershipChanged(ctx context.Context) error {
	if err := g.reregister(ctx); err != nil {
		return err
	}
	return unavailable("the guard key has changed", nil)
}

func (g *epochGuard) reregister(ctx context.Context) error {
	g.mu.Lock()
	g.registered = false
	g.mu.Unlock()
	_, err := g.admit(ctx)
	return err
}

// refuse stores a lasting refusal: ErrRegressed until the epoch is raised, ErrForeign until recheck finds our guard
// key. Other errors are ignored.
func (g *epochGuard) refuse(err error) {
	if !errors.Is(err, ErrRegressed) && !errors.Is(err, ErrForeign) {
		return
	}
	g.mu.Lock()
	var lost *RegressedError
	stale := errors.As(err, &lost) && lost.Epoch < g.epoch
	first := g.refusal == nil && !stale
	if first {
		g.refusal, g.registered = err, false
	}
	g.mu.Unlock()
	if first {
		g.onRefuse(err)
	}
}

// recheck reads guard key and counter. It detects a restored etcd without any request of a caller, and the end of a
// foreign prefix.
func (g *epochGuard) recheck(ctx context.Context) error {
	p, err := g.admit(ctx)
	if err != nil && !errors.Is(err, ErrForeign) {
		return err
	}
	found, readErr := g.store.ReadGuard(ctx)
	switch {
	case readErr != nil:
		return unavailable("read the guard key", readErr)
	case err != nil && found.Owner != nil && found.Owner.Deployment != g.deployment:
		return err
	case err != nil:
		g.clearRefusal()
		return g.reregister(ctx)
	}
	if err := g.validate(p, found); !isOwnershipError(err) {
		return err
	}
	return g.reregister(ctx)
}

func (g *epochGuard) clearRefusal() {
	g.mu.Lock()
	g.refusal = nil
	g.mu.Unlock()
	g.onRefuse(nil)
}
