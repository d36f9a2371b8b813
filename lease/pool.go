package lease

import (
	"context"
	"slices"
	"time"
)

// minPoolTTL is the shortest TTL of pooled sessions: shorter ones would mostly expire unused.
const minPoolTTL = 6 * time.Second

// pool has one-shot sessions that were created in advance, with their session keys in etcd, so that an open without a
// session needs no write to etcd. Lessor.mu guards it. The first demand starts to fill it.
type pool struct {
	ttl     time.Duration // of the newest demand
	ready   []*session
	filling bool // fillPool is running
}

// takePooled removes a session with that TTL from the pool and starts to fill the pool. It returns nil if there is
// none.
func (l *Lessor) takePooled(ctx context.Context, ttl time.Duration) *session {
	s := l.popPooled(ttl)
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

func (l *Lessor) popPooled(ttl time.Duration) *session {
	if l.cfg.Pool < 0 || ttl < minPoolTTL {
		return nil
	}
	l.guard.cached() // after a raise of the epoch it ends sessions of older epochs
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.pool.ttl = ttl
	if !l.pool.filling && len(l.pool.ready) <= l.cfg.Pool/2 {
		l.pool.filling = true
		l.background.Go(l.fillPool)
	}
	for i, s := range l.pool.ready {
		if g := s.grants[0]; g.ttl == ttl && g.trust() > 0 {
			l.pool.ready = slices.Delete(l.pool.ready, i, i+1)
			return s
		}
	}
	return nil
}

// fillPool is a goroutine that creates sessions until the pool is full or a creation fails. Close waits for it.
func (l *Lessor) fillPool() {
	for {
		l.mu.Lock()
		ttl := l.pool.ttl
		if l.closed || len(l.pool.ready) >= l.cfg.Pool {
			l.pool.filling = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.lifetime, l.cfg.CommitTimeout)
		s, err := l.newRemote(ctx, Spec{TTL: ttl, OneShot: true})
		cancel()
		l.mu.Lock()
		if err != nil {
			l.pool.filling = false // the next demand starts it again
			l.mu.Unlock()
			return
		}
		l.pool.ready = append(l.pool.ready, s)
		l.mu.Unlock()
	}
}

// refreshPool renews the pooled sessions and removes those that are lost or have another TTL than the newest demand.
func (l *Lessor) refreshPool(ctx context.Context) {
	l.mu.Lock()
	ready, ttl := slices.Clone(l.pool.ready), l.pool.ttl
	l.mu.Unlock()
	var removed []*session
	for _, s := range ready {
		g := s.grants[0]
		half := (g.ttl - Margin(g.ttl)) / 2
		if g.ttl != ttl || !g.isTrusted() || g.trust() < half && !renewSucceeded(ctx, g) {
			removed = append(removed, s)
		}
	}
	if len(removed) == 0 {
		return
	}
	l.mu.Lock()
	l.pool.ready = slices.DeleteFunc(l.pool.ready, func(s *session) bool { return slices.Contains(removed, s) })
	l.mu.Unlock()
}

func renewSucceeded(ctx context.Context, g *grant) bool {
	_, err := g.renew(ctx)
	return err == nil
}
