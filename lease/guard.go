package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// guard refuses to claim from an etcd that knows less than we do, or that is not ours. Its decision is judge, a pure
// function; the rest remembers.
type guard struct {
	source     Guard
	stamps     Stamps
	deployment string
	onRefuse   func(err error)    // called once per refusal, and with nil when it ended
	onEpoch    func(epoch uint32) // a higher epoch holds: claims of older ones are void
	enrolling  chan struct{}      // holds one token: who reads and writes the guard key

	mu      sync.Mutex
	stamped bool   // the guard key was seen to be ours in this epoch
	epoch   uint32 // of the newest pass
	known   int64  // the highest revision seen by this process in this epoch
	refusal error
}

// pass is the permission to send one request: what it must compare, and what its answer must not fall below.
type pass struct {
	stamp Stamp
	known int64
}

// enter gives a pass, or says why nothing may be claimed. It must be called before the request is sent: a request that
// etcd carries out later than that cannot show less than what was known by then.
func (g *guard) enter(ctx context.Context) (pass, error) {
	if p, ok, err := g.glance(); ok || err != nil {
		return p, err
	}
	select {
	case g.enrolling <- struct{}{}:
	case <-ctx.Done():
		return pass{}, unavailable("waiting to read the guard key", context.Cause(ctx))
	}
	defer func() { <-g.enrolling }()
	if p, ok, err := g.glance(); ok || err != nil {
		return p, err
	}
	return g.enrol(ctx)
}

// glance answers from memory where it can.
func (g *guard) glance() (pass, bool, error) {
	epoch, known := g.read()
	g.mu.Lock()
	if epoch > g.epoch {
		g.epoch, g.known, g.stamped = epoch, 0, false
		ended := g.refusal != nil
		g.refusal = nil
		g.mu.Unlock()
		g.onEpoch(epoch)
		if ended {
			g.onRefuse(nil)
		}
		return pass{}, false, nil
	}
	defer g.mu.Unlock()
	if g.refusal != nil {
		return pass{}, false, g.refusal
	}
	return pass{Stamp{g.deployment, g.epoch}, max(known, g.known)}, g.stamped && epoch == g.epoch, nil
}

// read gives epoch and highest revision as they stood at one moment.
func (g *guard) read() (epoch uint32, known int64) {
	for {
		epoch, known = g.source.Epoch(), g.source.MaxRevision()
		if g.source.Epoch() == epoch {
			return epoch, known
		}
	}
}

// enrol compares the guard key with what we know, and writes it where that is right. Several nodes may do so at once;
// who comes second looks again.
func (g *guard) enrol(ctx context.Context) (pass, error) {
	epoch, known := g.read()
	g.mu.Lock()
	p := pass{Stamp{g.deployment, epoch}, max(known, g.known)}
	g.mu.Unlock()
	err := g.inspect(ctx, p)
	for tries := 1; isStamp(err) && tries < 3; tries++ {
		err = g.inspect(ctx, p)
	}
	if err != nil {
		g.refuse(err)
		return pass{}, unlessClassed(err, "the guard key changes all the time")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.epoch == epoch {
		g.stamped = true
	}
	return p, nil
}

// inspect reads the guard key, judges it, and writes it if it has to; *StampError when somebody else wrote meanwhile.
func (g *guard) inspect(ctx context.Context, p pass) error {
	found, revision, err := g.stamps.Stamp(ctx)
	if err != nil {
		return unavailable("reading the guard key", err)
	}
	known := p.known
	if found == nil {
		_, now := g.read() // once more, after the answer: what was learnt meanwhile forbids to write
		known = max(known, now)
	}
	write, err := judge(found, revision, p.stamp, known)
	if err != nil || !write {
		return err
	}
	err = g.stamps.SetStamp(ctx, found, p.stamp)
	if err == nil || isStamp(err) {
		return err
	}
	return unavailable("writing the guard key", err)
}

// judge says whether claims may be made in an etcd with this guard key at this revision, and whether the guard key
// must be written first.
func judge(found *Stamp, revision int64, mine Stamp, known int64) (write bool, err error) {
	switch {
	case found == nil && known > 0:
		return false, &RegressedError{Epoch: mine.Epoch, Known: known, Seen: revision, Why: "its guard key is gone"}
	case found == nil:
		return true, nil
	case found.Deployment != mine.Deployment:
		return false, fmt.Errorf("%w: it is %q, this is %q", ErrForeign, found.Deployment, mine.Deployment)
	case revision < known:
		return false, &RegressedError{Epoch: mine.Epoch, Known: known, Seen: revision, Why: "its revision went back"}
	case found.Epoch > mine.Epoch:
		return false, unavailable(fmt.Sprintf("the ledger seen here is behind: lease epoch %d, etcd has %d", mine.Epoch, found.Epoch), nil)
	}
	return found.Epoch < mine.Epoch, nil
}

// saw takes note of the revision of an answer.
func (g *guard) saw(p pass, revision int64) error {
	if revision < p.known {
		err := &RegressedError{Epoch: p.stamp.Epoch, Known: p.known, Seen: revision, Why: "its revision went back"}
		g.refuse(err)
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.stamp.Epoch == g.epoch {
		g.known = max(g.known, revision)
	}
	return nil
}

// relook reads the guard key again after etcd said that it is another one.
func (g *guard) relook(ctx context.Context) error {
	g.mu.Lock()
	g.stamped = false
	g.mu.Unlock()
	_, err := g.enter(ctx)
	return err
}

// refuse remembers err when it stands until somebody acts: a lost past until the epoch rises, a foreign prefix until
// the patrol finds it ours.
func (g *guard) refuse(err error) {
	if !errors.Is(err, ErrRegressed) && !errors.Is(err, ErrForeign) {
		return
	}
	g.mu.Lock()
	var lost *RegressedError
	stale := errors.As(err, &lost) && lost.Epoch < g.epoch
	first := g.refusal == nil && !stale
	if first {
		g.refusal, g.stamped = err, false
	}
	g.mu.Unlock()
	if first {
		g.onRefuse(err)
	}
}

// patrol looks at the guard key although nobody claims anything: it notices a lost past, and a foreign prefix that was
// set right.
func (g *guard) patrol(ctx context.Context) error {
	p, err := g.enter(ctx)
	if err != nil && !errors.Is(err, ErrForeign) {
		return err
	}
	found, revision, readErr := g.stamps.Stamp(ctx)
	switch {
	case readErr != nil:
		return unavailable("reading the guard key", readErr)
	case err != nil && found != nil && found.Deployment != g.deployment:
		return err
	case err != nil:
		g.forgive()
		return g.relook(ctx)
	case found == nil || *found != p.stamp:
		return g.relook(ctx)
	}
	return g.saw(p, revision)
}

// forgive ends a refusal.
func (g *guard) forgive() {
	g.mu.Lock()
	g.refusal = nil
	g.mu.Unlock()
	g.onRefuse(nil)
}
