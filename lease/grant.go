package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// maxLeases is how many leases of attempts one etcd lease carries before a kept session takes another etcd lease beside
// it: etcd is slow to end a lease with very many keys.
const maxLeases = 2000

// grant is one etcd lease with its marker, as this process sees it: a session, in the ledger's words. Once trust in it
// has ended it never comes back, even if a renewal is answered later.
//
// A kept grant that lost its trust while leases under it are not released is renewed on, so that its marker stays in etcd
// and nobody can prove that the session has ended while an effect may be in the air. It is revoked when they are released.
type grant struct {
	lessor  *Lessor
	session *session
	ref     flight.Session
	lease   LeaseID
	ttl     time.Duration
	kept    bool
	window  atomic.Pointer[Window]
	ctx     context.Context // ends with trust; its cause says why
	cancel  context.CancelCauseFunc
	needed  context.Context // ends when nothing here needs the etcd lease any longer
	unneed  context.CancelFunc

	mu     sync.Mutex
	leases int  // reserved and not released
	closed bool // its owner gave it up, and revokes it
	gone   bool // etcd no longer has it
	expiry *time.Timer
}

func (d *Lessor) newGrant(s *session, m Marker, sent Instant) *grant {
	g := &grant{lessor: d, session: s, ref: m.Session, lease: m.Lease, ttl: m.TTL, kept: m.Kept}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	g.needed, g.unneed = context.WithCancel(context.Background())
	w := NewWindow(sent, m.TTL)
	g.window.Store(&w)
	g.mu.Lock() // the timer may fire before it is stored
	defer g.mu.Unlock()
	g.expiry = time.AfterFunc(max(w.Left(d.cfg.Now()), 0), g.expire)
	return g
}

// trust is what is left of the window.
func (g *grant) trust() time.Duration {
	if g.ctx.Err() != nil {
		return 0
	}
	return g.window.Load().Left(g.lessor.cfg.Now())
}

func (g *grant) alive() bool { return g.ctx.Err() == nil }

// why is the cause of the end of trust; nil before.
func (g *grant) why() error { return context.Cause(g.ctx) }

func (g *grant) isGone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// expire ends trust when the window is shut; a renewal may have moved that moment.
func (g *grant) expire() {
	left := g.window.Load().Left(g.lessor.cfg.Now())
	if left <= 0 {
		g.end(errExpired)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alive() {
		g.expiry.Reset(left)
	}
}

// renew asks etcd for a new window. The answer counts from the moment before it was asked.
func (g *grant) renew(ctx context.Context) (time.Duration, error) {
	if err := g.why(); err != nil {
		return 0, err
	}
	left, err := g.prolong(ctx)
	if why := g.why(); err == nil && why != nil {
		return 0, why
	}
	return left, err
}

// prolong renews the etcd lease, whether this process trusts it or not.
func (g *grant) prolong(ctx context.Context) (time.Duration, error) {
	sent := g.lessor.cfg.Now()
	ttl, err := g.lessor.cfg.Store.Renew(ctx, g.lease)
	switch {
	case errors.Is(err, ErrLost):
		g.lose(err)
		return 0, err
	case err != nil:
		err = unavailable("renewing the session", err)
		g.lessor.cfg.Events.renewFailed(g.ref.ID, g.trust(), err)
		return 0, err
	}
	w := NewWindow(sent, ttl)
	for {
		old := g.window.Load()
		if !w.endsAfter(*old, sent) || g.window.CompareAndSwap(old, &w) {
			break
		}
	}
	g.lessor.cfg.Events.renewed(g.ref.ID, g.trust())
	return g.window.Load().Left(sent), nil
}

// reserve counts one more lease. It returns false when there is no room, and why trust has ended where it has.
func (g *grant) reserve() (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.why(); err != nil {
		return false, err
	}
	if g.kept && g.leases >= maxLeases {
		return false, nil
	}
	g.leases++
	return true, nil
}

// hasRoom reports whether reserve would succeed.
func (g *grant) hasRoom() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive() && (!g.kept || g.leases < maxLeases)
}

func (g *grant) unreserve() {
	g.mu.Lock()
	g.leases--
	g.settleLocked()
	g.mu.Unlock()
}

// unreleased is how many leases are reserved and not released.
func (g *grant) unreleased() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leases
}

// settleLocked stops what the grant does here once trust has ended and nothing is under it any longer.
func (g *grant) settleLocked() {
	if g.alive() {
		return
	}
	used := g.kept && g.leases > 0
	if !used || g.closed || g.gone {
		g.unneed()
	}
	if !used {
		g.lessor.unregister(g)
	}
}

// end ends trust, once. It does no I/O.
func (g *grant) end(cause error) {
	g.mu.Lock()
	if !g.alive() {
		g.mu.Unlock()
		return
	}
	g.cancel(cause)
	g.expiry.Stop()
	leases := g.leases
	g.settleLocked()
	g.mu.Unlock()
	g.lessor.cfg.Events.sessionEnded(g.ref.ID, cause, leases)
}

// discard ends a grant that nobody has seen.
func (g *grant) discard(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel(cause)
	g.expiry.Stop()
	g.unneed()
}

// claimsEnd reports whether the claims of the grant end without being deleted: with the etcd lease, which is gone or is
// revoked.
func (g *grant) claimsEnd() bool {
	return g.isGone() || g.kept && g.needed.Err() != nil
}

// lose ends trust because etcd says that the session is gone. It is not renewed or revoked any more.
func (g *grant) lose(cause error) {
	g.mu.Lock()
	g.gone = true
	g.settleLocked()
	g.mu.Unlock()
	g.end(cause)
}

// close ends trust and then the etcd lease, whatever is under it. One that ended before, and that its keeper revokes, is
// left to the keeper. ErrUnavailable: the lease may live until its TTL is over.
//
// If the process dies before the lease is revoked, the session ends after its TTL.
func (g *grant) close(ctx context.Context, cause error) error {
	g.mu.Lock()
	mine := !g.gone && (g.closed || !g.kept || g.needed.Err() == nil)
	g.closed = g.closed || mine
	g.settleLocked()
	g.mu.Unlock()
	g.end(cause)
	if !mine {
		return nil
	}
	ctx, cancel := g.lessor.bounded(ctx)
	defer cancel()
	if err := g.lessor.cfg.Store.Revoke(ctx, g.lease); err != nil {
		return unavailable("ending the session", err)
	}
	return nil
}
