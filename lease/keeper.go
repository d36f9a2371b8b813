package lease

import (
	"context"
	"time"
)

// nextRenewal is the pause until the next renewal: a third of the TTL after an answer, less after none.
func nextRenewal(ttl time.Duration, failed bool) time.Duration {
	if !failed {
		return RenewEvery(ttl)
	}
	return min(max(ttl/15, 100*time.Millisecond), time.Second)
}

// renewPatience bounds one renewal. While the session is trusted the renewal does not outlive the window: when trust ends
// it is decided anew whether the etcd lease is still needed.
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

// keep renews a grant until nothing here needs it, and then revokes it, so that others need not wait for its TTL.
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

// revokeLost revokes a lost grant, until etcd has answered or the lease has expired anyway. It leaves alone what etcd says
// is gone, and what its owner has closed: the owner revokes it.
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

// maintain does, every few seconds, what no caller waits for.
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

// maintainOnce takes and returns whether the sessions of earlier lives of this node are revoked.
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

// revokeEarlierLives ends the sessions that earlier lives of this node kept, so that nobody need wait for their TTL. They
// are never used again. The caller of New makes sure that the earlier lives are dead: a node holds a lock on its data.
// False: try again.
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
			_ = d.cfg.Store.Revoke(ctx, m.Lease) // else it expires
		}
	}
	return true
}
