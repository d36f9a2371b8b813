package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// guard refuses an etcd that knows less than the ledger, or that belongs to another deployment. Its decision is judge,
// a pure function; the rest remembers the decision and asks again when it may have changed.
type guard struct {
	ledger      Guard
	store       GuardStore
	deployment  string
	onRefuse    func(err error)    // called once per refusal, and with nil when it ended
	onEpoch     func(epoch uint32) // the lease epoch has risen: sessions of older ones are void
	registering chan struct{}      // holds one token: who reads and writes the guard key

	mu         sync.Mutex
	registered bool // the guard key was seen to be ours in this epoch
	epoch      uint32
	refusal    error
}

// permit allows one request: which guard key the request must find, and below what the counter in its answer must not
// be. It is taken before the request is sent: etcd answers with at least what the ledger had recorded by then.
type permit struct {
	own   Ownership
	known uint64
}

// admit returns a permit, or why there is none. It does I/O only when the guard key has not been seen in this epoch.
func (g *guard) admit(ctx context.Context) (permit, error) {
	if p, ok, err := g.cached(); ok || err != nil {
		return p, err
	}
	select {
	case g.registering <- struct{}{}:
	case <-ctx.Done():
		return permit{}, unavailable("waiting to read the guard key", context.Cause(ctx))
	}
	defer func() { <-g.registering }()
	if p, ok, err := g.cached(); ok || err != nil {
		return p, err
	}
	return g.register(ctx)
}

// cached answers from memory where it can.
func (g *guard) cached() (permit, bool, error) {
	epoch, known := g.recorded()
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

// recorded reads epoch and counter of the ledger as of one moment.
func (g *guard) recorded() (epoch uint32, counter uint64) {
	for {
		epoch, counter = g.ledger.Epoch(), g.ledger.Counter()
		if g.ledger.Epoch() == epoch {
			return epoch, counter
		}
	}
}

// register compares the guard key with the ledger, and writes the key where that is right. Several nodes may do so at
// once; one that lost the race reads again.
//
// If the process dies between the read and the write, nothing was written; after the write the guard key is right.
func (g *guard) register(ctx context.Context) (permit, error) {
	epoch, known := g.recorded()
	p := permit{Ownership{g.deployment, epoch}, known}
	err := g.inspect(ctx, p)
	for tries := 1; isOwnership(err) && tries < 3; tries++ {
		err = g.inspect(ctx, p)
	}
	if err != nil {
		g.refuse(err)
		return permit{}, unlessClassed(err, "the guard key changes all the time")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.epoch == epoch {
		g.registered = true
	}
	return p, nil
}

// inspect reads the guard key, judges it, and writes it if it must; *OwnershipError when another node wrote meanwhile.
func (g *guard) inspect(ctx context.Context, p permit) error {
	found, err := g.store.ReadGuard(ctx)
	if err != nil {
		return unavailable("reading the guard key", err)
	}
	known := p.known
	if found.Owner == nil {
		_, now := g.recorded() // once more, after the answer: a counter recorded meanwhile forbids to write
		known = max(known, now)
	}
	write, err := judge(found, p.own, known)
	if err != nil || !write {
		return err
	}
	err = g.store.SetOwnership(ctx, found.Owner, p.own)
	if err == nil || isOwnership(err) {
		return err
	}
	return unavailable("writing the guard key", err)
}

// judge says whether an etcd may be used in which guard key and counter were found like this, and whether the guard key
// must be written first.
func judge(found GuardState, mine Ownership, known uint64) (write bool, err error) {
	lost := func(why string) error {
		return &RegressedError{Epoch: mine.Epoch, Known: known, Seen: found.Counter, Why: why}
	}
	switch owner := found.Owner; {
	case owner == nil && known > 0:
		return false, lost("its guard key is gone")
	case owner == nil:
		return true, nil
	case owner.Deployment != mine.Deployment:
		return false, fmt.Errorf("%w: it is %q, this is %q", ErrForeign, owner.Deployment, mine.Deployment)
	case owner.Epoch > mine.Epoch:
		return false, unavailable(fmt.Sprintf("the ledger as this node knows it is behind: lease epoch %d, etcd has %d", mine.Epoch, owner.Epoch), nil)
	case found.Counter < known:
		return false, lost("its counter went back")
	case owner.Epoch < mine.Epoch && known > 0:
		return false, lost("its guard key is of an older epoch")
	}
	return found.Owner.Epoch < mine.Epoch, nil
}

// verify judges what a request found that was sent with the permit. *OwnershipError: the guard key has changed.
func (g *guard) verify(p permit, found GuardState) error {
	write, err := judge(found, p.own, p.known)
	if err == nil && write {
		err = &OwnershipError{Found: found.Owner}
	}
	if err != nil {
		g.refuse(err)
	}
	return err
}

// changed reads the guard key again after etcd said that it is another one. It always returns an error: the request
// that found the other guard key did nothing.
func (g *guard) changed(ctx context.Context) error {
	if err := g.registerAgain(ctx); err != nil {
		return err
	}
	return unavailable("the guard key has just changed", nil)
}

func (g *guard) registerAgain(ctx context.Context) error {
	g.mu.Lock()
	g.registered = false
	g.mu.Unlock()
	_, err := g.admit(ctx)
	return err
}

// refuse remembers err where it lasts: a lost past until the epoch rises, a foreign prefix until recheck finds ours.
func (g *guard) refuse(err error) {
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

// recheck reads guard key and counter although nobody asks: it finds a lost past, and the end of a foreign prefix.
func (g *guard) recheck(ctx context.Context) error {
	p, err := g.admit(ctx)
	if err != nil && !errors.Is(err, ErrForeign) {
		return err
	}
	found, readErr := g.store.ReadGuard(ctx)
	switch {
	case readErr != nil:
		return unavailable("reading the guard key", readErr)
	case err != nil && found.Owner != nil && found.Owner.Deployment != g.deployment:
		return err
	case err != nil:
		g.clearRefusal()
		return g.registerAgain(ctx)
	}
	if err := g.verify(p, found); !isOwnership(err) {
		return err
	}
	return g.registerAgain(ctx)
}

func (g *guard) clearRefusal() {
	g.mu.Lock()
	g.refusal = nil
	g.mu.Unlock()
	g.onRefuse(nil)
}
