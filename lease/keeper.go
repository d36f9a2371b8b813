package lease

import (
	"context"
	"time"
)

// nextRenewal returns the pause until the next renewal: a third of the TTL, and less after a failed renewal.
func nextRenewal(ttl time.Duration, failed bool) time.Duration {
	if !failed {
		return RenewEvery(ttl)
	}
	return min(max(ttl/15, 100*time.Millisecond), time.Second)
}

// renewTimeout returns the timeout of one renewal. A renewal of a trusted grant ends with the window at the latest,
// because the end of trust may mean that the etcd lease is not needed any more.
func renewTimeout(ttl, left time.Duration) time.Duration {
	if left <= 0 {
		return RenewEvery(ttl)
	}
	return max(min(RenewEvery(ttl), left), time.Millisecond)
}

func (l *Lessor) startKeeper(g *grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.background.Go(func() { l.keepAlive(g) })
	return nil
}

// keepAlive is the keeper, the goroutine of a local grant; Close waits for it. It renews the grant until the grant is
// not needed any more, and then revokes it, so that other nodes do not have to wait for its TTL.
func (l *Lessor) keepAlive(g *grant) {
	timer := time.NewTimer(nextRenewal(g.ttl, false))
	defer timer.Stop()
	for {
		select {
		case <-g.renewCtx.Done():
			l.revokeLost(g)
			return
		case <-timer.C:
		}
		err := l.renewOnce(g)
		timer.Reset(nextRenewal(g.ttl, err != nil))
	}
}

func (l *Lessor) renewOnce(g *grant) error {
	ctx, cancel := context.WithTimeout(g.renewCtx, renewTimeout(g.ttl, g.trust()))
	defer cancel()
	_, err := g.renewLease(ctx)
	return err
}

// revokeLost revokes a lost grant. It retries until etcd has answered, the lease has expired, or the Lessor is closed.
// It skips a grant that etcd no longer has, and a closed one, which close revokes.
func (l *Lessor) revokeLost(g *grant) {
	g.mu.Lock()
	skip := g.closed || g.gone
	g.mu.Unlock()
	if skip {
		return
	}
	ctx, cancel := context.WithTimeout(l.lifetime, g.ttl)
	defer cancel()
	for {
		err := l.cfg.Store.Revoke(ctx, g.lease)
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(nextRenewal(g.ttl, true)):
		case <-ctx.Done():
			return
		}
	}
}

// maintain is the goroutine that runs maintainOnce every Config.MaintainEvery until Close, which waits for it.
func (l *Lessor) maintain() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for revoked := false; ; {
		select {
		case <-l.lifetime.Done():
			return
		case <-timer.C:
		}
		revoked = l.maintainOnce(revoked)
		timer.Reset(jitter(l.cfg.MaintainEvery))
	}
}

// maintainOnce repeats failed releases, checks the guard key, revokes sessions of earlier incarnations and refreshes
// the pool. It takes and returns whether those sessions are revoked.
func (l *Lessor) maintainOnce(revoked bool) bool {
	ctx, cancel := context.WithTimeout(l.lifetime, l.cfg.CommitTimeout)
	defer cancel()
	l.retryReleases()
	if err := l.guard.recheck(ctx); err != nil {
		return revoked
	}
	revoked = revoked || l.revokePreviousIncarnations(ctx)
	l.refreshPool(ctx)
	return revoked
}

// revokePreviousIncarnations revokes the local sessions of earlier incarnations of this node, so that other nodes do
// not have to wait for their TTL. False: the caller must try again.
//
// The caller of New ensures that no earlier incarnation is running: a node holds the lock of its data directory.
func (l *Lessor) revokePreviousIncarnations(ctx context.Context) bool {
	if l.cfg.Node == "" {
		return true
	}
	sessionKeys, err := l.cfg.Store.SessionKeys(ctx)
	if err != nil {
		return false
	}
	for _, m := range sessionKeys {
		if m.AutoRenew && m.Node == l.cfg.Node && m.Incarnation != l.incarnation {
			_ = l.cfg.Store.Revoke(ctx, m.Lease) // after an error the session expires
		}
	}
	return true
}
