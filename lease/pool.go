package lease

import (
	"context"
	"slices"
	"time"
)

// minPoolTTL is the shortest TTL for which sessions are made ahead: shorter ones would hardly outlive their wait.
const minPoolTTL = 6 * time.Second

// pool holds one-shot sessions made ahead, with their markers in etcd, so that an open without a session pays for none.
// It is guarded by the lessor's mutex and starts with the first demand.
type pool struct {
	ttl     time.Duration // of the newest demand
	ready   []*session
	filling bool
}

// takePooled takes a session with that TTL out of the pool and has the pool filled; nil when there is none to be had.
func (d *Lessor) takePooled(ctx context.Context, ttl time.Duration) *session {
	s := d.popPooled(ttl)
	if s == nil {
		return nil
	}
	g := s.grants[0]
	if g.trust() < (g.ttl-Margin(g.ttl))/2 {
		if _, err := g.renew(ctx); err != nil {
			return nil // it expires
		}
	}
	return s
}

func (d *Lessor) popPooled(ttl time.Duration) *session {
	if d.cfg.Pool < 0 || ttl < minPoolTTL {
		return nil
	}
	d.guard.cached() // a risen epoch ends the sessions of older ones
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

// fillPool makes sessions until the pool is full.
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
			d.pool.filling = false // the next demand tries again
			d.mu.Unlock()
			return
		}
		d.pool.ready = append(d.pool.ready, s)
		d.mu.Unlock()
	}
}

// tendPool renews what waits in the pool and drops what nobody asks for any more.
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
