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

// grant is one etcd lease with its session key, as this process sees it. The ledger calls it a session. Trust that has ended
// never returns, even if a renewal is answered later.
//
// A local grant that lost trust is renewed until its leases are released. So its session key remains in etcd, and no node
// can prove the end of the session while an effect may be running. After that it is revoked.
type grant struct {
	lessor       *Lessor
	session      *session
	ref          flight.Session
	lease        LeaseID
	ttl          time.Duration
	local        bool                   // renewed by its keeper in this process
	window       atomic.Pointer[Window] // of the newest renewal
	trustCtx     context.Context        // ends with trust; its cause is the reason
	cancelTrust  context.CancelCauseFunc
	renewCtx     context.Context // ends when this process stops renewing the etcd lease; wakes the keeper
	stopRenewing context.CancelFunc

	mu     sync.Mutex                // guards the fields below, and orders the end of trust with reserve
	leases int                       // of a local grant: reserved and not released
	nonces map[flight.Nonce]struct{} // the same of a remote grant; by nonce, because ReleaseClaim releases them
	closed bool                      // close was called, which revokes the etcd lease
	gone   bool                      // etcd no longer has the lease
	expiry *time.Timer               // calls expire
}

func (l *Lessor) newGrant(s *session, m SessionKey, sent clock.Instant) *grant {
	g := &grant{lessor: l, session: s, ref: m.Session, lease: m.Lease, ttl: m.TTL, local: m.AutoRenew, nonces: make(map[flight.Nonce]struct{})}
	g.trustCtx, g.cancelTrust = context.WithCancelCause(context.Background())
	g.renewCtx, g.stopRenewing = context.WithCancel(context.Background())
	w := NewWindow(sent, m.TTL)
	g.window.Store(&w)
	g.mu.Lock() // expire may run before expiry is set
	defer g.mu.Unlock()
	g.expiry = time.AfterFunc(max(w.Left(l.cfg.Now()), 0), g.expire)
	return g
}

// trust returns the remaining time of the window, or 0 after trust has ended.
func (g *grant) trust() time.Duration {
	if g.trustCtx.Err() != nil {
		return 0
	}
	return g.window.Load().Left(g.lessor.cfg.Now())
}

func (g *grant) isTrusted() bool { return g.trustCtx.Err() == nil }

// lossCause returns the cause of the end of trust; nil before.
func (g *grant) lossCause() error { return context.Cause(g.trustCtx) }

func (g *grant) isGone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// expire runs on the timer. It ends trust if the window is over; after a renewal it sets the timer again.
func (g *grant) expire() {
	left := g.window.Load().Left(g.lessor.cfg.Now())
	if left <= 0 {
		g.endTrust(errExpired)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isTrusted() {
		g.expiry.Reset(left)
	}
}

// renew renews the etcd lease of a trusted grant and returns the new trust, counted from before the request was sent.
func (g *grant) renew(ctx context.Context) (time.Duration, error) {
	if err := g.lossCause(); err != nil {
		return 0, err
	}
	left, err := g.renewLease(ctx)
	if why := g.lossCause(); err == nil && why != nil {
		return 0, why
	}
	return left, err
}

// renewLease renews the etcd lease, also of a grant that is no longer trusted: that extends the window but not trust.
func (g *grant) renewLease(ctx context.Context) (time.Duration, error) {
	sent := g.lessor.cfg.Now()
	ttl, err := g.lessor.cfg.Store.Renew(ctx, g.lease)
	switch {
	case errors.Is(err, ErrLost):
		g.markGone(err)
		return 0, err
	case err != nil:
		err = unavailable("renew session", err)
		if f := g.lessor.cfg.Events.RenewFailed; f != nil {
			f(g.ref.ID, g.trust(), err)
		}
		return 0, err
	}
	w := NewWindow(sent, ttl)
	for { // concurrent answers arrive in any order: the latest end is stored
		old := g.window.Load()
		if !w.endsAfter(*old, sent) || g.window.CompareAndSwap(old, &w) {
			break
		}
	}
	if f := g.lessor.cfg.Events.Renewed; f != nil {
		f(g.ref.ID, g.trust())
	}
	return g.window.Load().Left(sent), nil
}

// reserve counts one more lease. It returns false if the grant is full, and the cause if trust has ended.
func (g *grant) reserve(nonce flight.Nonce) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.lossCause(); err != nil {
		return false, err
	}
	switch {
	case !g.local:
		g.nonces[nonce] = struct{}{}
	case g.leases >= maxLeases:
		return false, nil
	default:
		g.leases++
	}
	return true, nil
}

// hasCapacity reports whether reserve would succeed.
func (g *grant) hasCapacity() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isTrusted() && (!g.local || g.leases < maxLeases)
}

func (g *grant) unreserve(nonce flight.Nonce) {
	g.mu.Lock()
	if delete(g.nonces, nonce); g.local {
		g.leases--
	}
	g.stopIfUnusedLocked()
	g.mu.Unlock()
}

// openLeases returns the number of leases of a local grant that are reserved and not released.
func (g *grant) openLeases() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leases
}

// stopIfUnusedLocked stops renewals and unregisters the grant once trust has ended and no unreleased lease needs it.
func (g *grant) stopIfUnusedLocked() {
	if g.isTrusted() {
		return
	}
	used := g.local && g.leases > 0
	if !used || g.closed || g.gone {
		g.stopRenewing()
	}
	if !used {
		g.lessor.unregister(g)
	}
}

// endTrust ends trust, once, and publishes the event. It does no I/O.
func (g *grant) endTrust(cause error) {
	g.mu.Lock()
	if !g.isTrusted() {
		g.mu.Unlock()
		return
	}
	g.cancelTrust(cause)
	g.expiry.Stop()
	leases := g.leases + len(g.nonces)
	g.stopIfUnusedLocked()
	g.mu.Unlock()
	if f := g.lessor.cfg.Events.SessionEnded; f != nil {
		f(g.ref.ID, cause, leases)
	}
}

// discard ends a grant that was not registered. No event is published.
func (g *grant) discard(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancelTrust(cause)
	g.expiry.Stop()
	g.stopRenewing()
}

// claimsEndWithLease reports whether the claims of the grant need no deletion, because its etcd lease is gone or is
// about to be revoked.
func (g *grant) claimsEndWithLease() bool {
	return g.isGone() || g.local && g.renewCtx.Err() != nil
}

// markGone ends trust because etcd no longer has the session. It is not renewed or revoked any more.
func (g *grant) markGone(cause error) {
	g.mu.Lock()
	g.gone = true
	g.stopIfUnusedLocked()
	g.mu.Unlock()
	g.endTrust(cause)
}

// close ends trust and then revokes the etcd lease, even with unreleased leases. It does not revoke a local grant whose
// keeper already does. ErrUnavailable: the lease may remain until its TTL is over.
//
// If the process dies before the revocation, the session ends after its TTL.
func (g *grant) close(ctx context.Context, cause error) error {
	g.mu.Lock()
	revoke := !g.gone && (g.closed || !g.local || g.renewCtx.Err() == nil)
	g.closed = g.closed || revoke
	g.stopIfUnusedLocked()
	g.mu.Unlock()
	g.endTrust(cause)
	if !revoke {
		return nil
	}
	ctx, cancel := g.lessor.bounded(ctx)
	defer cancel()
	if err := g.lessor.cfg.Store.Revoke(ctx, g.lease); err != nil {
		return unavailable("end session", err)
	}
	return nil
}
