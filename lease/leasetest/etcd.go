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
func (et *Etcd) Expire(id flight.SessionID) {
	et.mu.Lock()
	defer et.mu.Unlock()
	for lid, l := range et.leases {
		if l.sessionKey.Session.ID == id {
			et.expireLocked(lid)
		}
	}
}

// Sessions lists the sessions with a session key.
func (et *Etcd) Sessions() []flight.SessionID {
	et.mu.Lock()
	defer et.mu.Unlock()
	var ids []flight.SessionID
	for _, l := range et.leases {
		ids = append(ids, l.sessionKey.Session.ID)
	}
	slices.Sort(ids)
	return ids
}

// Revision returns the current revision.
func (et *Etcd) Revision() int64 {
	et.mu.Lock()
	defer et.mu.Unlock()
	return et.revision
}

// SetRevision sets the revision to an older or newer one, as a restore from a backup may.
func (et *Etcd) SetRevision(revision int64) {
	et.mu.Lock()
	defer et.mu.Unlock()
	et.revision = revision
}

// SetGuardKey replaces the guard key; nil deletes it.
func (et *Etcd) SetGuardKey(o *lease.Ownership) {
	et.mu.Lock()
	defer et.mu.Unlock()
	et.owner = o
}

// SetCounter sets the counter of the guard key, as a restore from a backup does; 0 deletes it.
func (et *Etcd) SetCounter(n uint64) {
	et.mu.Lock()
	defer et.mu.Unlock()
	et.counter = n
}

// Counter returns the counter of the guard key.
func (et *Etcd) Counter() uint64 {
	et.mu.Lock()
	defer et.mu.Unlock()
	return et.counter
}

// SessionKey returns the session key of a session, or nil if there is none.
func (et *Etcd) SessionKey(id flight.SessionID) *lease.SessionKey {
	for _, m := range et.sessionKeys() {
		if m.Session.ID == id {
			return &m
		}
	}
	return nil
}

// CorruptClaim changes a byte of a claim's value.
func (et *Etcd) CorruptClaim(key flight.Key, at int) {
	et.mu.Lock()
	defer et.mu.Unlock()
	b := []byte(et.claims[key.String()].Value)
	b[at] ^= 0x80
	et.claims[key.String()].Value = string(b)
}

func (et *Etcd) grant(own lease.Ownership, m lease.SessionKey) (lease.Granted, error) {
	et.mu.Lock()
	defer et.mu.Unlock()
	if err := et.checkLocked(own); err != nil {
		return lease.Granted{}, err
	}
	et.nextID++
	et.revision++
	id := et.nextID
	m.Lease, m.Session.Revision = id, et.revision
	l := &fakeLease{sessionKey: m, expires: time.Now().Add(m.TTL)}
	l.timer = time.AfterFunc(m.TTL, func() { et.onTimer(id) })
	et.leases[id] = l
	return lease.Granted{Lease: id, TTL: m.TTL, Revision: et.revision}, nil
}

// onTimer ends a lease whose TTL is over; after a renewal it sets the timer again.
func (et *Etcd) onTimer(id lease.LeaseID) {
	et.mu.Lock()
	defer et.mu.Unlock()
	l := et.leases[id]
	if l == nil {
		return
	}
	if left := time.Until(l.expires); left > 0 {
		l.timer.Reset(left)
		return
	}
	et.expireLocked(id)
}

func (et *Etcd) renew(id lease.LeaseID) (time.Duration, error) {
	et.mu.Lock()
	defer et.mu.Unlock()
	l := et.leases[id]
	if l == nil {
		return 0, fmt.Errorf("%w: the fake's lease is gone", lease.ErrLost)
	}
	l.expires = time.Now().Add(l.sessionKey.TTL)
	return l.sessionKey.TTL, nil
}

func (et *Etcd) revoke(id lease.LeaseID) {
	et.mu.Lock()
	defer et.mu.Unlock()
	et.expireLocked(id)
}

// expireLocked deletes a lease, its session key and its claims in one revision.
func (et *Etcd) expireLocked(id lease.LeaseID) {
	l := et.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(et.leases, id)
	et.revision++
	for k, c := range et.claims {
		if c.leaseID == id {
			delete(et.claims, k)
		}
	}
	for watch := range et.watches {
		select {
		case watch.deleted <- l.sessionKey.Session.ID:
		default: // the hint is lost: Watch may miss deletions
		}
	}
}

func (et *Etcd) checkLocked(own lease.Ownership) error {
	if et.owner == nil || *et.owner != own {
		return &lease.OwnershipError{Found: et.owner}
	}
	return nil
}

func (et *Etcd) setOwnership(old *lease.Ownership, own lease.Ownership) error {
	et.mu.Lock()
	defer et.mu.Unlock()
	if (old == nil) != (et.owner == nil) || old != nil && *old != *et.owner {
		return &lease.OwnershipError{Found: et.owner}
	}
	et.owner = &own
	et.revision++
	return nil
}

func (et *Etcd) raiseCounter(own lease.Ownership, from uint64) (bool, error) {
	et.mu.Lock()
	defer et.mu.Unlock()
	if err := et.checkLocked(own); err != nil || et.counter != from {
		return false, err
	}
	et.counter++
	et.revision++
	return true, nil
}

var errDuplicateKey = errors.New("leasetest: duplicate key in a transaction")

func (et *Etcd) commit(own lease.Ownership, ops []*lease.Op) error {
	et.mu.Lock()
	defer et.mu.Unlock()
	if err := et.checkLocked(own); err != nil {
		return err
	}
	seen := make(map[string]bool, len(ops))
	for _, o := range ops {
		if seen[o.Key] {
			return errDuplicateKey // etcd rejects the whole transaction
		}
		seen[o.Key] = true
	}
	next := et.revision + 1
	for _, o := range ops {
		et.applyLocked(o, next)
		if o.Done {
			et.revision = next
		}
	}
	return nil
}

func (et *Etcd) applyLocked(o *lease.Op, revision int64) {
	o.Done, o.Holder = false, nil
	c := et.claims[o.Key]
	if o.Kind.Puts() {
		l := et.leases[o.Lease]
		alive := l != nil && l.sessionKey.Session.ID == o.Session
		switch {
		case o.Kind == lease.OpClaim && c != nil:
			e := c.RawClaim
			o.Holder = &e
		case alive:
			et.claims[o.Key] = &fakeClaim{lease.RawClaim{Key: o.Key, Value: o.Value, ModRevision: revision}, o.Lease}
			o.Done = true
		}
		return
	}
	if c != nil && (o.Kind == lease.OpRelease && c.Value == o.Value || o.Kind == lease.OpRemove && c.ModRevision == o.ModRevision) {
		delete(et.claims, o.Key)
		o.Done = true
	}
}

func (et *Etcd) list() []lease.RawClaim {
	et.mu.Lock()
	defer et.mu.Unlock()
	all := make([]lease.RawClaim, 0, len(et.claims))
	for _, c := range et.claims {
		all = append(all, c.RawClaim)
	}
	slices.SortFunc(all, func(a, b lease.RawClaim) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

func (et *Etcd) sessionKeys() []lease.SessionKey {
	et.mu.Lock()
	defer et.mu.Unlock()
	var list []lease.SessionKey
	for _, l := range et.leases {
		list = append(list, l.sessionKey)
	}
	return list
}

func (et *Etcd) readLiving(ids []flight.SessionID) (state lease.GuardState, living []flight.SessionID) {
	et.mu.Lock()
	defer et.mu.Unlock()
	state = lease.GuardState{Owner: et.owner, Counter: et.counter, Revision: et.revision}
	for _, l := range et.leases {
		if id := l.sessionKey.Session.ID; len(ids) == 0 || slices.Contains(ids, id) {
			living = append(living, id)
		}
	}
	return state, living
}

func (et *Etcd) watchSessionKeys(ctx context.Context, deleted func(flight.SessionID)) error {
	watch := &sessionKeyWatch{deleted: make(chan flight.SessionID, 64)}
	et.mu.Lock()
	et.watches[watch] = struct{}{}
	et.mu.Unlock()
	defer func() {
		et.mu.Lock()
		defer et.mu.Unlock()
		delete(et.watches, watch)
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
