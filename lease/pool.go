package lease

import (
	"context"
	"slices"
	"time"
)

// minPoolTTL is the shortest TTL for which sessions are granted ahead: shorter ones would hardly outlive their wait.
const minPoolTTL = 6 * time.Second

// pool holds terms granted ahead, so that the first open of a remote caller pays no extra write. It is guarded by the
// desk's mutex and starts with the first remote session.
type pool struct {
	ttl     time.Duration // of the newest demand
	ready   []*term
	filling bool
}

// fromPool gives a term for a remote caller's session.
func (d *Desk) fromPool(ctx context.Context, spec Spec) (*term, error) {
	t := d.takePooled(spec.TTL)
	if t == nil {
		return d.grant(ctx, spec)
	}
	t.setOwner(spec.Owner)
	if t.trust() < (t.ttl-Margin(t.ttl))/2 {
		if _, err := t.renew(ctx); err != nil {
			return d.grant(ctx, spec)
		}
	}
	return t, nil
}

// takePooled takes a term with that TTL out of the pool, if there is one, and has the pool filled.
func (d *Desk) takePooled(ttl time.Duration) *term {
	if d.cfg.Pool < 0 || ttl < minPoolTTL {
		return nil
	}
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
	for i, t := range d.pool.ready {
		if t.ttl == ttl && t.trust() > 0 {
			d.pool.ready = slices.Delete(d.pool.ready, i, i+1)
			return t
		}
	}
	return nil
}

// fillPool grants until the pool is full.
func (d *Desk) fillPool() {
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
		t, err := d.grant(ctx, Spec{TTL: ttl})
		cancel()
		d.mu.Lock()
		if err != nil {
			d.pool.filling = false // the next demand tries again
			d.mu.Unlock()
			return
		}
		d.pool.ready = append(d.pool.ready, t)
		d.mu.Unlock()
	}
}

// tendPool renews what waits in the pool and throws out what nobody asks for any more.
func (d *Desk) tendPool(ctx context.Context) {
	d.mu.Lock()
	ready, ttl := slices.Clone(d.pool.ready), d.pool.ttl
	d.mu.Unlock()
	var out []*term
	for _, t := range ready {
		half := (t.ttl - Margin(t.ttl)) / 2
		if t.ttl != ttl || !t.alive() || t.trust() < half && d.stale(ctx, t) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return
	}
	d.mu.Lock()
	d.pool.ready = slices.DeleteFunc(d.pool.ready, func(t *term) bool { return slices.Contains(out, t) })
	d.mu.Unlock()
}

// stale reports whether a term of the pool could not be renewed.
func (d *Desk) stale(ctx context.Context, t *term) bool {
	_, err := t.renew(ctx)
	return err != nil
}
