package leasetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Etcd is an etcd in memory, with the features that leases need. It uses package time, so in a testing/synctest bubble
// its time is virtual. Unlike etcd it ends a lease exactly when its TTL is over.
type Etcd struct {
	mu       sync.Mutex // guards all fields
	revision int64
	nextID   lease.LeaseID
	owner    *lease.Ownership
	counter  uint64
	leases   map[lease.LeaseID]*fakeLease
	claims   map[string]*fakeClaim
	watches  map[*sessionKeyWatch]struct{}
}

type fakeLease struct {
	sessionKey lease.SessionKey
	expires    time.Time
	timer      *time.Timer
}

type fakeClaim struct {
	lease.RawClaim
	leaseID lease.LeaseID
}

type sessionKeyWatch struct{ deleted chan flight.SessionID }

// NewEtcd returns an empty etcd.
func NewEtcd() *Etcd {
	return &Etcd{
		revision: 1, leases: make(map[lease.LeaseID]*fakeLease), claims: make(map[string]*fakeClaim),
		watches: make(map[*sessionKeyWatch]struct{}),
	}
}

// Expire ends the etcd lease of a session, as if its TTL were over.
func (w *Etcd) Expire(id flight.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lid, l := range w.leases {
		if l.sessionKey.Session.ID == id {
			w.expireLocked(lid)
		}
	}
}

// Sessions lists the sessions with a session key.
func (w *Etcd) Sessions() []flight.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []flight.SessionID
	for _, l := range w.leases {
		ids = append(ids, l.sessionKey.Session.ID)
	}
	slices.Sort(ids)
	return ids
}

// Revision returns the current revision.
func (w *Etcd) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// SetRevision sets the revision to an older or newer one, as a restore from a backup may.
func (w *Etcd) SetRevision(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision = revision
}

// SetGuardKey replaces the guard key; nil deletes it.
func (w *Etcd) SetGuardKey(o *lease.Ownership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner = o
}

// GuardKey returns the guard key; nil when there is none.
func (w *Etcd) GuardKey() *lease.Ownership {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// SetCounter sets the counter of the guard key, as a restore from a backup does; 0 deletes it.
func (w *Etcd) SetCounter(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter = n
}

// Counter returns the counter of the guard key.
func (w *Etcd) Counter() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counter
}

// SessionKey returns the session key of a session; nil when there is none.
func (w *Etcd) SessionKey(id flight.SessionID) *lease.SessionKey {
	for _, m := range w.sessionKeys() {
		if m.Session.ID == id {
			return &m
		}
	}
	return nil
}

// CorruptClaim changes a byte of a claim's value.
func (w *Etcd) CorruptClaim(key flight.Key, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := []byte(w.claims[key.String()].Value)
	b[at] ^= 0x80
	w.claims[key.String()].Value = string(b)
}

func (w *Etcd) grant(own lease.Ownership, m lease.SessionKey) (lease.Granted, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLocked(own); err != nil {
		return lease.Granted{}, err
	}
	w.nextID++
	w.revision++
	id := w.nextID
	m.Lease, m.Session.Revision = id, w.revision
	l := &fakeLease{sessionKey: m, expires: time.Now().Add(m.TTL)}
	l.timer = time.AfterFunc(m.TTL, func() { w.onTimer(id) })
	w.leases[id] = l
	return lease.Granted{Lease: id, TTL: m.TTL, Revision: w.revision}, nil
}

// onTimer ends a lease whose TTL is over; after a renewal it sets the timer again.
func (w *Etcd) onTimer(id lease.LeaseID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[id]
	if l == nil {
		return
	}
	if left := time.Until(l.expires); left > 0 {
		l.timer.Reset(left)
		return
	}
	w.expireLocked(id)
}

func (w *Etcd) renew(id lease.LeaseID) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[id]
	if l == nil {
		return 0, fmt.Errorf("%w: the fake's lease is gone", lease.ErrLost)
	}
	l.expires = time.Now().Add(l.sessionKey.TTL)
	return l.sessionKey.TTL, nil
}

func (w *Etcd) revoke(id lease.LeaseID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked(id)
}

// expireLocked deletes a lease, its session key and its claims in one revision.
func (w *Etcd) expireLocked(id lease.LeaseID) {
	l := w.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(w.leases, id)
	w.revision++
	for k, c := range w.claims {
		if c.leaseID == id {
			delete(w.claims, k)
		}
	}
	for watch := range w.watches {
		select {
		case watch.deleted <- l.sessionKey.Session.ID:
		default: // the hint is lost: Watch may miss deletions
		}
	}
}

func (w *Etcd) checkLocked(own lease.Ownership) error {
	if w.owner == nil || *w.owner != own {
		return &lease.OwnershipError{Found: w.owner}
	}
	return nil
}

func (w *Etcd) setOwnership(old *lease.Ownership, own lease.Ownership) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if (old == nil) != (w.owner == nil) || old != nil && *old != *w.owner {
		return &lease.OwnershipError{Found: w.owner}
	}
	w.owner = &own
	w.revision++
	return nil
}

func (w *Etcd) raiseCounter(own lease.Ownership, from uint64) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLocked(own); err != nil || w.counter != from {
		return false, err
	}
	w.counter++
	w.revision++
	return true, nil
}

var errDuplicateKey = errors.New("leasetest: duplicate key in a transaction")

func (w *Etcd) commit(own lease.Ownership, ops []*lease.Op) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLocked(own); err != nil {
		return err
	}
	seen := make(map[string]bool, len(ops))
	for _, o := range ops {
		if seen[o.Key] {
			return errDuplicateKey // etcd rejects the whole transaction
		}
		seen[o.Key] = true
	}
	next := w.revision + 1
	for _, o := range ops {
		w.applyLocked(o, next)
		if o.Done {
			w.revision = next
		}
	}
	return nil
}

func (w *Etcd) applyLocked(o *lease.Op, revision int64) {
	o.Done, o.Holder = false, nil
	c := w.claims[o.Key]
	if o.Kind.Puts() {
		l := w.leases[o.Lease]
		lives := l != nil && l.sessionKey.Session.ID == o.Session
		switch {
		case o.Kind == lease.OpClaim && c != nil:
			e := c.RawClaim
			o.Holder = &e
		case lives:
			w.claims[o.Key] = &fakeClaim{lease.RawClaim{Key: o.Key, Value: o.Value, ModRevision: revision}, o.Lease}
			o.Done = true
		}
		return
	}
	if c != nil && (o.Kind == lease.OpRelease && c.Value == o.Value || o.Kind == lease.OpRemove && c.ModRevision == o.ModRevision) {
		delete(w.claims, o.Key)
		o.Done = true
	}
}

func (w *Etcd) list() []lease.RawClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]lease.RawClaim, 0, len(w.claims))
	for _, c := range w.claims {
		all = append(all, c.RawClaim)
	}
	slices.SortFunc(all, func(a, b lease.RawClaim) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

func (w *Etcd) sessionKeys() []lease.SessionKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []lease.SessionKey
	for _, l := range w.leases {
		list = append(list, l.sessionKey)
	}
	return list
}

func (w *Etcd) readLiving(ids []flight.SessionID) (state lease.GuardState, living []flight.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state = lease.GuardState{Owner: w.owner, Counter: w.counter, Revision: w.revision}
	for _, l := range w.leases {
		if id := l.sessionKey.Session.ID; len(ids) == 0 || slices.Contains(ids, id) {
			living = append(living, id)
		}
	}
	return state, living
}

func (w *Etcd) watchSessionKeys(ctx context.Context, deleted func(flight.SessionID)) error {
	watch := &sessionKeyWatch{deleted: make(chan flight.SessionID, 64)}
	w.mu.Lock()
	w.watches[watch] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watches, watch)
	}()
	for {
		select {
		case id := <-watch.deleted:
			deleted(id)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
