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
func renewPatience(ttl, left time.Duration) time.Duration {
	if left <= 0 {
		return RenewEvery(ttl)
	}
	return max(min(RenewEvery(ttl), left), time.Millisecond)
}

func (d *Lessor) startKeeper(g *grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.work.Go(func() { d.keep(g) })
	return nil
}

// keepAlive is the keeper, the goroutine of a local grant; Close waits for it. It renews the grant until the grant is
// not needed any more, and then revokes it, so that other nodes do not have to wait for its TTL.
func (d *Lessor) keep(g *grant) {
	timer := time.NewTimer(nextRenewal(g.ttl, false))
	defer timer.Stop()
	for {
		select {
		case <-g.needed.Done():
			d.revokeLost(g)
			return
		case <-timer.C:
		}
		err := d.renewOnce(g)
		timer.Reset(nextRenewal(g.ttl, err != nil))
	}
}

func (d *Lessor) renewOnce(g *grant) error {
	ctx, cancel := context.WithTimeout(g.needed, renewPatience(g.ttl, g.trust()))
	defer cancel()
	_, err := g.prolong(ctx)
	return err
}

// revokeLost revokes a lost grant. It retries until etcd has answered, the lease has expired, or the Lessor is closed.
// It skips a grant that etcd no longer has, and a closed one, which close revokes.
func (d *Lessor) revokeLost(g *grant) {
	g.mu.Lock()
	skip := g.closed || g.gone
	g.mu.Unlock()
	if skip {
		return
	}
	ctx, cancel := context.WithTimeout(d.life, g.ttl)
	defer cancel()
	for {
		err := d.cfg.Store.Revoke(ctx, g.lease)
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
func (d *Lessor) maintain() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for revoked := false; ; {
		select {
		case <-d.life.Done():
			return
		case <-timer.C:
		}
		revoked = d.maintainOnce(revoked)
		timer.Reset(jitter(d.cfg.Maintain))
	}
}

// maintainOnce repeats failed releases, checks the guard key, revokes sessions of earlier incarnations and refreshes
// the pool. It takes and returns whether those sessions are revoked.
func (d *Lessor) maintainOnce(revoked bool) bool {
	ctx, cancel := context.WithTimeout(d.life, d.cfg.CommitTimeout)
	defer cancel()
	d.retryReleases()
	if err := d.guard.recheck(ctx); err != nil {
		return revoked
	}
	revoked = revoked || d.revokeEarlierLives(ctx)
	d.tendPool(ctx)
	return revoked
}

// revokePreviousIncarnations revokes the local sessions of earlier incarnations of this node, so that other nodes do
// not have to wait for their TTL. False: the caller must try again.
//
// The caller of New ensures that no earlier incarnation is running: a node holds the lock of its data directory.
func (d *Lessor) revokeEarlierLives(ctx context.Context) bool {
	if d.cfg.Node == "" {
		return true
	}
	markers, err := d.cfg.Store.Markers(ctx)
	if err != nil {
		return false
	}
	for _, m := range markers {
		if m.Kept && m.Node == d.cfg.Node && m.Incarnation != d.incarnation {
			_ = d.cfg.Store.Revoke(ctx, m.Lease) // after an error the session expires
		}
	}
	return true
}
