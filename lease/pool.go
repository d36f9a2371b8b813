package lease

import (
	"context"
	"slices"
	"time"
)

// minPoolTTL is the shortest TTL of pooled sessions: shorter ones would mostly expire unused.
const minPoolTTL = 6 * time.Second

// pool has one-shot sessions that were created in advance, with their markers in etcd, so that an open without a
// session needs no write to etcd. Lessor.mu guards it. The first demand starts to fill it.
type pool struct {
	ttl     time.Duration // of the newest demand
	ready   []*session
	filling bool // fillPool is running
}

// takePooled removes a session with that TTL from the pool and starts to fill the pool. It returns nil if there is
// none.
func (d *Lessor) takePooled(ctx context.Context, ttl time.Duration) *session {
	s := d.popPooled(ttl)
	if s == nil {
		return nil
	}
	g := s.grants[0]
	if g.trust() < (g.ttl-Margin(g.ttl))/2 {
		if _, err := g.renew(ctx); err != nil {
			return nil // the session expires
		}
	}
	return s
}

func (d *Lessor) popPooled(ttl time.Duration) *session {
	if d.cfg.Pool < 0 || ttl < minPoolTTL {
		return nil
	}
	d.guard.cached() // after a raise of the epoch it ends sessions of older epochs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.pool.ttl = ttl
	if !d.pool.filling && len(d.pool.ready) <= d.cfg.Pool/2 {
		d.pool.filling = true
		d.work.Go(d.fillPool)
	}
	for i, s := range d.pool.ready {
		if g := s.grants[0]; g.ttl == ttl && g.trust() > 0 {
			d.pool.ready = slices.Delete(d.pool.ready, i, i+1)
			return s
		}
	}
	return nil
}

// fillPool is a goroutine that creates sessions until the pool is full or a creation fails. Close waits for it.
func (d *Lessor) fillPool() {
	for {
		d.mu.Lock()
		ttl := d.pool.ttl
		if d.closed || len(d.pool.ready) >= d.cfg.Pool {
			d.pool.filling = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		ctx, cancel := context.WithTimeout(d.life, d.cfg.CommitTimeout)
		s, err := d.newRemote(ctx, Spec{TTL: ttl, OneShot: true})
		cancel()
		d.mu.Lock()
		if err != nil {
			d.pool.filling = false // the next demand starts it again
			d.mu.Unlock()
			return
		}
		d.pool.ready = append(d.pool.ready, s)
		d.mu.Unlock()
	}
}

// refreshPool renews the pooled sessions and removes those that are lost or have another TTL than the newest demand.
func (d *Lessor) tendPool(ctx context.Context) {
	d.mu.Lock()
	ready, ttl := slices.Clone(d.pool.ready), d.pool.ttl
	d.mu.Unlock()
	var out []*session
	for _, s := range ready {
		g := s.grants[0]
		half := (g.ttl - Margin(g.ttl)) / 2
		if g.ttl != ttl || !g.alive() || g.trust() < half && !renewed(ctx, g) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return
	}
	d.mu.Lock()
	d.pool.ready = slices.DeleteFunc(d.pool.ready, func(s *session) bool { return slices.Contains(out, s) })
	d.mu.Unlock()
}

func renewed(ctx context.Context, g *grant) bool {
	_, err := g.renew(ctx)
	return err == nil
}
