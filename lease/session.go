package lease

import (
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

// session is the Session of this package. A kept one has as many terms as it needs, one after the other when leases
// are lost, and beside each other when there are very many claims; a remote caller's has exactly one.
type session struct {
	desk     *Desk
	spec     Spec
	granting chan struct{} // holds one token: who asks for a new term

	mu     sync.Mutex
	closed bool
	terms  []*term // newest last; the last one stays when it has ended
}

func (s *Spec) check() error {
	if s.TTL == 0 {
		s.TTL = DefaultTTL
	}
	switch {
	case s.TTL < MinTTL || s.TTL > MaxTTL || s.TTL%time.Second != 0:
		return &flight.InvalidError{Field: "ttl", Detail: fmt.Sprintf("whole seconds from %s to %s", MinTTL, MaxTTL)}
	case len(s.Owner) > MaxOwner:
		return &flight.InvalidError{Field: "owner", Detail: fmt.Sprintf("at most %d bytes", MaxOwner)}
	}
	return nil
}

// newSessionID gives 26 random characters, which cannot be guessed.
func newSessionID() flight.SessionID {
	return flight.SessionID("ses_" + strings.ToLower(rand.Text()))
}

// NewSession implements Service.
func (d *Desk) NewSession(ctx context.Context, spec Spec) (Session, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	s := &session{desk: d, spec: spec, granting: make(chan struct{}, 1)}
	if spec.Kept {
		return d.newKept(ctx, s)
	}
	t, err := d.fromPool(ctx, spec)
	if err != nil {
		return nil, err
	}
	s.terms = []*term{t}
	return s, d.adopt(s, t)
}

func (d *Desk) newKept(ctx context.Context, s *session) (Session, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	d.kept[s] = struct{}{}
	d.mu.Unlock()
	if _, err := s.term(ctx); err != nil {
		d.mu.Lock()
		delete(d.kept, s)
		d.mu.Unlock()
		return nil, err
	}
	return s, nil
}

// adopt makes a remote caller's session known by its id.
func (d *Desk) adopt(s *session, t *term) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if t.alive() {
		d.remote[t.id] = s
	}
	return nil
}

// Session implements Service.
func (d *Desk) Session(ctx context.Context, id flight.SessionID) (Session, error) {
	d.mu.Lock()
	s := d.remote[id]
	d.mu.Unlock()
	if s != nil && s.terms[0].trust() > 0 {
		return s, nil
	}
	p, err := d.guard.enter(ctx)
	if err != nil {
		return nil, err
	}
	markers, err := d.cfg.Registry.Markers(ctx, id)
	if err != nil {
		return nil, unavailable("looking for the session", err)
	}
	if len(markers) == 0 || markers[0].Kept || markers[0].Epoch != p.stamp.Epoch {
		return nil, fmt.Errorf("%w: there is no session %s", ErrLost, id)
	}
	return d.attach(ctx, markers[0])
}

// attach takes up a session that was found in etcd.
func (d *Desk) attach(ctx context.Context, m Marker) (Session, error) {
	sent := d.cfg.Now()
	ttl, err := d.cfg.Registry.Renew(ctx, m.Lease)
	if err != nil {
		return nil, unlessClassed(err, "renewing the session")
	}
	m.TTL = ttl
	d.mu.Lock()
	if s := d.remote[m.Session]; s != nil && s.terms[0].trust() > 0 { // somebody else found it at the same time
		d.mu.Unlock()
		return s, nil
	}
	d.mu.Unlock()
	t := d.newTerm(m, m.Owner, sent)
	if err := d.enlist(t); err != nil {
		t.end(err)
		return nil, err
	}
	s := &session{desk: d, spec: Spec{TTL: ttl, Owner: m.Owner}, granting: make(chan struct{}, 1), terms: []*term{t}}
	return s, d.adopt(s, t)
}

// grant asks etcd for a new term.
func (d *Desk) grant(ctx context.Context, spec Spec) (*term, error) {
	p, err := d.guard.enter(ctx)
	if err != nil {
		return nil, err
	}
	m := Marker{Session: newSessionID(), TTL: spec.TTL, Epoch: p.stamp.Epoch, Kept: spec.Kept, Boot: d.cfg.Boot, Node: d.cfg.Node, Owner: spec.Owner}
	sent := d.cfg.Now()
	g, err := d.cfg.Registry.Grant(ctx, p.stamp, m)
	switch {
	case isStamp(err):
		if again := d.guard.relook(ctx); again != nil {
			return nil, again
		}
		return nil, unavailable("the guard key has just changed", err)
	case err != nil:
		return nil, unavailable("starting a session", err) // a lease that was granted all the same ends by itself
	}
	if err := d.guard.saw(p, g.Revision); err != nil {
		return nil, err
	}
	m.Lease, m.TTL = g.Lease, g.TTL
	t := d.newTerm(m, spec.Owner, sent)
	if err := d.enlist(t); err != nil {
		t.end(err)
		return nil, err
	}
	d.cfg.Events.termStarted(t.id, t.ttl)
	return t, nil
}

// holds reports whether t is a term of the session.
func (s *session) holds(t *term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.terms, t)
}

// ID implements Session.
func (s *session) ID() flight.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms[len(s.terms)-1].id
}

// current is a term that takes claims, or nil; an error when there never will be one.
func (s *session) current() (*term, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	for i := len(s.terms) - 1; i >= 0; i-- {
		if s.terms[i].room() || !s.spec.Kept && s.terms[i].alive() {
			return s.terms[i], nil
		}
	}
	if !s.spec.Kept {
		return nil, s.terms[0].why()
	}
	return nil, nil
}

// term gives a term that takes claims, a new one if need be.
func (s *session) term(ctx context.Context) (*term, error) {
	if t, err := s.current(); t != nil || err != nil {
		return t, err
	}
	select {
	case s.granting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.granting }()
	if t, err := s.current(); t != nil || err != nil {
		return t, err
	}
	t, err := s.desk.grant(ctx, s.spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		t.end(ErrClosed)
		return nil, ErrClosed
	}
	s.terms = append(slices.DeleteFunc(s.terms, func(t *term) bool { return !t.alive() }), t)
	return t, s.desk.startKeeper(t)
}

// Renew implements Session.
func (s *session) Renew(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	t, closed := s.terms[len(s.terms)-1], s.closed
	s.mu.Unlock()
	if closed {
		return 0, ErrClosed
	}
	return t.renew(ctx)
}

// Close implements Session.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	terms := slices.Clone(s.terms)
	s.mu.Unlock()
	var errs []error
	for _, t := range terms {
		errs = append(errs, s.desk.revoke(ctx, t))
	}
	s.desk.mu.Lock()
	delete(s.desk.kept, s)
	s.desk.mu.Unlock()
	return errors.Join(errs...)
}

// revoke ends a term in etcd too: its claims go with it. A term that lost nothing by that is retired first, so that
// nobody takes its end for a death.
func (d *Desk) revoke(ctx context.Context, t *term) error {
	switch why := t.why(); {
	case why != nil && !t.silent():
		return nil // it ended before; its keeper, or its time to live, buries it
	case why == nil && t.end(ErrClosed) == 0:
		o := &op{done: make(chan struct{}, 1)}
		o.Op = Op{Kind: OpRetire, Session: t.id, Lease: t.lease}
		_ = d.commitOne(ctx, o) // without it the sweeper looks once for nothing
	}
	if err := d.cfg.Registry.Revoke(ctx, t.lease); err != nil {
		return unavailable("ending the session", err)
	}
	return nil
}
