package lease

import (
	"context"
	"errors"
	"time"
)

// nextRenewal is the pause until the next renewal: a third of the TTL after an answer, sooner after none.
func nextRenewal(ttl time.Duration, failed bool) time.Duration {
	if !failed {
		return RenewEvery(ttl)
	}
	return min(max(ttl/15, 100*time.Millisecond), time.Second)
}

// renewPatience bounds one renewal: it never outlives the window, because past that nothing of ours may be sent. Etcd
// would prolong a lease that nobody believes in any more, and a key would stay locked by a holder that does nothing.
func renewPatience(ttl, left time.Duration) time.Duration {
	return max(min(RenewEvery(ttl), left), time.Millisecond)
}

func (d *Desk) startKeeper(t *term) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.work.Go(func() { d.keep(t) })
	return nil
}

// keep renews a term until it ends, and then sees to it that it ends in etcd too.
func (d *Desk) keep(t *term) {
	timer := time.NewTimer(nextRenewal(t.ttl, false))
	defer timer.Stop()
	for {
		select {
		case <-t.ended:
			d.bury(t)
			return
		case <-timer.C:
		}
		err := d.renewOnce(t)
		timer.Reset(nextRenewal(t.ttl, err != nil))
	}
}

func (d *Desk) renewOnce(t *term) error {
	ctx, cancel := context.WithTimeout(t.ctx, renewPatience(t.ttl, t.trust()))
	defer cancel()
	_, err := t.renew(ctx)
	return err
}

// bury revokes a lease that was lost, so that others need not wait for it. Its claims may be gone already, or go when
// it expires; either way nobody here holds them, and its id is not used again.
func (d *Desk) bury(t *term) {
	if errors.Is(t.why(), ErrClosed) {
		return // who closed it revokes it
	}
	ctx, cancel := context.WithTimeout(d.life, t.ttl)
	defer cancel()
	for {
		err := d.cfg.Registry.Revoke(ctx, t.lease)
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(nextRenewal(t.ttl, true)):
		case <-ctx.Done():
			return
		}
	}
}

// patrol looks after everything that no caller waits for, every few seconds.
func (d *Desk) patrol() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for buried := false; ; {
		select {
		case <-d.closing:
			return
		case <-timer.C:
		}
		buried = d.round(buried)
		timer.Reset(jitter(d.cfg.Patrol))
	}
}

// round does what is due. It takes and gives whether the earlier lives of this node are buried.
func (d *Desk) round(buried bool) bool {
	ctx, cancel := context.WithTimeout(d.life, d.cfg.CommitTimeout)
	defer cancel()
	d.again()
	if err := d.guard.patrol(ctx); err != nil {
		return buried
	}
	buried = buried || d.buryEarlierLives(ctx)
	d.sweepStrays(ctx)
	d.tendPool(ctx)
	return buried
}

// buryEarlierLives ends sessions that earlier lives of this node kept: their holders are dead, and nobody need wait for
// the time to live. They are never taken up again. It must be right that an earlier life of the node is dead: who runs
// the node sees to that with a lock on its data. False: try again.
func (d *Desk) buryEarlierLives(ctx context.Context) bool {
	if d.cfg.Node == "" {
		return true
	}
	markers, err := d.cfg.Registry.Markers(ctx, "")
	if err != nil {
		return false
	}
	for _, m := range markers {
		if m.Kept && m.Node == d.cfg.Node && m.Boot != d.cfg.Boot {
			_ = d.cfg.Registry.Revoke(ctx, m.Lease) // else it expires
		}
	}
	return true
}
