package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// session is the Session of this package. A local session gets a new grant when its last one is lost or full. A remote
// session has exactly one grant.
type session struct {
	lessor     *Lessor
	spec       Spec
	grantToken chan struct{} // has one slot: taken by the call that creates a grant

	mu     sync.Mutex // guards the fields below
	closed bool
	grants []*grant // newest last; the last one remains when it has ended
}

func (s *Spec) check() error {
	s.TTL = cmp.Or(s.TTL, DefaultTTL)
	switch {
	case s.TTL < MinTTL || s.TTL > MaxTTL || s.TTL%time.Second != 0:
		return &flight.InvalidError{Field: "ttl", Detail: fmt.Sprintf("whole seconds from %s to %s", MinTTL, MaxTTL)}
	case len(s.Owner) > MaxOwner:
		return &flight.InvalidError{Field: "owner", Detail: fmt.Sprintf("at most %d bytes", MaxOwner)}
	case s.AutoRenew && s.OneShot:
		return &flight.InvalidError{Field: "one_shot", Detail: "a one-shot session is not renewed by this process"}
	}
	return nil
}

// newSessionID returns a prefix and 26 random characters of 5 bits each, which cannot be guessed.
func newSessionID() flight.SessionID {
	return flight.SessionID("ses_" + strings.ToLower(rand.Text()))
}

func (l *Lessor) newSession(spec Spec) *session {
	return &session{lessor: l, spec: spec, grantToken: make(chan struct{}, 1)}
}

// NewSession implements Sessions.
func (l *Lessor) NewSession(ctx context.Context, spec Spec) (Session, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if l.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	switch {
	case spec.AutoRenew:
		return l.newLocal(ctx, spec)
	case spec.OneShot:
		if s := l.takePooled(ctx, spec.TTL); s != nil {
			return s, nil
		}
	}
	s, err := l.newRemote(ctx, spec)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (l *Lessor) newRemote(ctx context.Context, spec Spec) (*session, error) {
	s := l.newSession(spec)
	g, err := l.createGrant(ctx, s)
	if err != nil {
		return nil, err
	}
	s.grants = []*grant{g}
	return s, nil
}

func (l *Lessor) newLocal(ctx context.Context, spec Spec) (Session, error) {
	s := l.newSession(spec)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, ErrClosed
	}
	l.localSessions[s] = struct{}{}
	l.mu.Unlock()
	if _, err := s.usableGrant(ctx); err != nil {
		l.mu.Lock()
		delete(l.localSessions, s)
		l.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// createGrant requests a new etcd lease with a session key.
//
// If the process dies here, or the answer is lost, an etcd lease without an owner may remain; it expires.
func (l *Lessor) createGrant(ctx context.Context, s *session) (*grant, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	p, err := l.guard.admit(ctx)
	if err != nil {
		return nil, err
	}
	m := SessionKey{
		Session: flight.Session{ID: newSessionID(), Epoch: p.owner.Epoch, OneShot: s.spec.OneShot},
		TTL:     s.spec.TTL, AutoRenew: s.spec.AutoRenew, Incarnation: l.incarnation, Node: l.cfg.Node, Owner: s.spec.Owner,
	}
	sent := l.cfg.Now()
	granted, err := l.cfg.Store.Grant(ctx, p.owner, m)
	switch {
	case isOwnershipError(err):
		return nil, l.guard.ownershipChanged(ctx)
	case err != nil:
		return nil, unavailable("start session", err)
	}
	m.Lease, m.TTL, m.Session.Revision = granted.Lease, granted.TTL, granted.Revision
	g := l.newGrant(s, m, sent)
	if err := l.register(g); err != nil {
		g.discard(err)
		return nil, err
	}
	if f := l.cfg.Events.SessionStarted; f != nil {
		f(g.ref.ID, g.ttl)
	}
	return g, nil
}

// Session implements Sessions.
func (l *Lessor) Session(ctx context.Context, id flight.SessionID) (Session, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	p, err := l.guard.admit(ctx) // after a raise of the epoch it ends cached sessions of older epochs
	if err != nil {
		return nil, err
	}
	if s := l.findTrusted(id); s != nil {
		return s, nil
	}
	m, err := l.cfg.Store.SessionKey(ctx, id)
	if err != nil {
		return nil, unavailable("find session", err)
	}
	if m == nil || m.AutoRenew || m.Session.Epoch != p.owner.Epoch {
		return nil, fmt.Errorf("%w: no session %q", ErrLost, id)
	}
	sent := l.cfg.Now()
	m.TTL, err = l.cfg.Store.Renew(ctx, m.Lease)
	if err != nil {
		return nil, ensureClass(err, "renew session")
	}
	s := l.newSession(Spec{TTL: m.TTL, Owner: m.Owner, OneShot: m.Session.OneShot})
	g := l.newGrant(s, *m, sent)
	s.grants = []*grant{g}
	return l.registerRemote(g)
}

// findTrusted returns the remote session with that id if this process trusts it, else nil.
func (l *Lessor) findTrusted(id flight.SessionID) *session {
	if g := l.find(id); g != nil && !g.local && g.trust() > 0 {
		return g.session
	}
	return nil
}

// EndSession implements Sessions.
func (l *Lessor) EndSession(ctx context.Context, id flight.SessionID) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	if g := l.find(id); g != nil {
		cause := ErrClosed // a remote caller ends its own session
		if g.local {
			cause = errEnded
		}
		if err := g.close(ctx, cause); err != nil {
			return err
		}
	} else {
		m, err := l.cfg.Store.SessionKey(ctx, id)
		if err != nil {
			return unavailable("find session", err)
		}
		if m == nil {
			return nil
		}
		if err := l.cfg.Store.Revoke(ctx, m.Lease); err != nil {
			return unavailable("end session", err)
		}
	}
	if g := l.find(id); g != nil {
		g.markGone(errEnded) // a concurrent call of Session has found and renewed it
	}
	return nil
}

// InUse implements Sessions.
func (l *Lessor) InUse(id flight.SessionID) bool {
	g := l.find(id)
	return g != nil && g.local && g.openLeases() > 0
}

// currentGrant returns the newest grant with capacity. Without one it returns nil for a local session, which can get a
// new grant, and the cause of the loss for a remote session.
func (s *session) currentGrant() (*grant, error) {
	if _, _, err := s.lessor.guard.cached(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	for _, g := range slices.Backward(s.grants) {
		if g.hasCapacity() {
			return g, nil
		}
	}
	if !s.spec.AutoRenew {
		why := s.grants[0].lossCause()
		if !errors.Is(why, ErrClosed) && !errors.Is(why, ErrLost) {
			why = fmt.Errorf("%w: %w", ErrLost, why) // etcd was rejected and has been accepted since
		}
		return nil, why
	}
	return nil, nil
}

// usableGrant returns a grant with capacity. It creates one if needed; one call at a time does so, and others wait for
// it.
func (s *session) usableGrant(ctx context.Context) (*grant, error) {
	if g, err := s.currentGrant(); g != nil || err != nil {
		return g, err
	}
	select {
	case s.grantToken <- struct{}{}:
	case <-ctx.Done():
		return nil, unavailable("wait for a session", context.Cause(ctx))
	}
	defer func() { <-s.grantToken }()
	if g, err := s.currentGrant(); g != nil || err != nil {
		return g, err
	}
	g, err := s.lessor.createGrant(ctx, s)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.grants = append(slices.DeleteFunc(s.grants, func(g *grant) bool { return g.renewCtx.Err() != nil }), g)
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, g.close(ctx, ErrClosed))
	}
	return g, s.lessor.startKeeper(g)
}

// newest returns the grant that Ref names.
func (s *session) newest() *grant {
	if g, err := s.currentGrant(); err == nil && g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[len(s.grants)-1]
}

// Ref implements Session.
func (s *session) Ref() flight.Session { return s.newest().ref }

// Trust implements Session.
func (s *session) Trust() time.Duration { return s.newest().trust() }

// TTL implements Session.
func (s *session) TTL() time.Duration { return s.newest().ttl }

// Reserve implements Session.
func (s *session) Reserve(ctx context.Context, key flight.Key, nonce flight.Nonce) (Lease, error) {
	for {
		g, err := s.usableGrant(ctx)
		if err != nil {
			return nil, err
		}
		if ok, _ := g.reserve(nonce); ok {
			return &reservation{grant: g, key: key, nonce: nonce}, nil
		} // the grant ended, or was filled, concurrently
	}
}

// Renew implements Session.
func (s *session) Renew(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, ErrClosed
	}
	ctx, cancel := s.lessor.bounded(ctx)
	defer cancel()
	return s.newest().renew(ctx)
}

// Close implements Session.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	grants := slices.Clone(s.grants)
	s.mu.Unlock()
	var errs []error
	for _, g := range grants {
		errs = append(errs, g.close(ctx, ErrClosed))
	}
	s.lessor.mu.Lock()
	delete(s.lessor.localSessions, s)
	s.lessor.mu.Unlock()
	return errors.Join(errs...)
}
