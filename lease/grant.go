package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// maxLeases is the number of leases of attempts under one etcd lease of a local session: etcd is slow to end a lease
// with very many keys.
const maxLeases = 2000

// grant is one etcd lease with its marker, as this process sees it. The ledger calls it a session. Trust that has ended
// never returns, even if a renewal is answered later.
//
// A local grant that lost trust is renewed until its leases are released. So its marker remains in etcd, and no node
// can prove the end of the session while an effect may be running. After that it is revoked.
type grant struct {
	lessor  *Lessor
	session *session
	ref     flight.Session
	lease   LeaseID
	ttl     time.Duration
	kept    bool                   // renewed by its keeper in this process
	window  atomic.Pointer[Window] // of the newest renewal
	ctx     context.Context        // ends with trust; its cause is the reason
	cancel  context.CancelCauseFunc
	needed  context.Context // ends when this process stops renewing the etcd lease; wakes the keeper
	unneed  context.CancelFunc

	mu     sync.Mutex  // guards the fields below, and orders the end of trust with reserve
	leases int         // reserved and not released
	closed bool        // close was called, which revokes the etcd lease
	gone   bool        // etcd no longer has the lease
	expiry *time.Timer // calls expire
}

func (d *Lessor) newGrant(s *session, m Marker, sent clock.Moment) *grant {
	g := &grant{lessor: d, session: s, ref: m.Session, lease: m.Lease, ttl: m.TTL, kept: m.Kept}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	g.needed, g.unneed = context.WithCancel(context.Background())
	w := NewWindow(sent, m.TTL)
	g.window.Store(&w)
	g.mu.Lock() // expire may run before expiry is set
	defer g.mu.Unlock()
	g.expiry = time.AfterFunc(max(w.Left(d.cfg.Now()), 0), g.expire)
	return g
}

// trust returns the remaining time of the window; 0 after trust has ended.
func (g *grant) trust() time.Duration {
	if g.ctx.Err() != nil {
		return 0
	}
	return g.window.Load().Left(g.lessor.cfg.Now())
}

func (g *grant) alive() bool { return g.ctx.Err() == nil }

// lossCause returns the cause of the end of trust; nil before.
func (g *grant) why() error { return context.Cause(g.ctx) }

func (g *grant) isGone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// expire runs on the timer. It ends trust if the window is over; after a renewal it sets the timer again.
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

// renew renews the etcd lease of a trusted grant and returns the new trust, counted from before the request was sent.
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

// renewLease renews the etcd lease, also of a grant that is no longer trusted: that extends the window but not trust.
func (g *grant) prolong(ctx context.Context) (time.Duration, error) {
	sent := g.lessor.cfg.Now()
	ttl, err := g.lessor.cfg.Store.Renew(ctx, g.lease)
	switch {
	case errors.Is(err, ErrLost):
		g.lose(err)
		return 0, err
	case err != nil:
		err = unavailable("renew session", err)
		g.lessor.cfg.Events.renewFailed(g.ref.ID, g.trust(), err)
		return 0, err
	}
	w := NewWindow(sent, ttl)
	for { // concurrent answers arrive in any order: the latest end is stored
		old := g.window.Load()
		if !w.endsAfter(*old, sent) || g.window.CompareAndSwap(old, &w) {
			break
		}
	}
	g.lessor.cfg.Events.renewed(g.ref.ID, g.trust())
	return g.window.Load().Left(sent), nil
}

// reserve counts one more lease. It returns false if the grant is full, and the cause if trust has ended.
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

// hasCapacity reports whether reserve would succeed.
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

// openLeases returns the number of leases that are reserved and not released.
func (g *grant) unreleased() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leases
}

// stopIfUnusedLocked stops renewals and unregisters the grant once trust has ended and no unreleased lease needs it.
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

// endTrust ends trust, once, and publishes the event. It does no I/O.
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

// discard ends a grant that was not registered. No event is published.
func (g *grant) discard(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel(cause)
	g.expiry.Stop()
	g.unneed()
}

// claimsEndWithLease reports whether the claims of the grant need no deletion, because its etcd lease is gone or is
// about to be revoked.
func (g *grant) claimsEnd() bool {
	return g.isGone() || g.kept && g.needed.Err() != nil
}

// markGone ends trust because etcd no longer has the session. It is not renewed or revoked any more.
func (g *grant) lose(cause error) {
	g.mu.Lock()
	g.gone = true
	g.settleLocked()
	g.mu.Unlock()
	g.end(cause)
}

// close ends trust and then revokes the etcd lease, even with unreleased leases. It does not revoke a local grant whose
// keeper already does. ErrUnavailable: the lease may remain until its TTL is over.
//
// If the process dies before the revocation, the session ends after its TTL.
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
		return unavailable("end session", err)
	}
	return nil
}
