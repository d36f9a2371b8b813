package leasetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// World is an etcd in memory, as far as leases need one. It reads package time, so in a testing/synctest bubble its
// time is virtual. Like etcd it ends a lease late rather than early, though by nothing.
type World struct {
	mu       sync.Mutex
	revision int64
	nextID   lease.LeaseID
	stamp    *lease.Stamp
	leases   map[lease.LeaseID]*fakeLease
	claims   map[string]*fakeClaim
	changed  chan struct{} // closed and replaced when claims went away
	deaths   map[*deathWatch]struct{}
}

type fakeLease struct {
	marker  lease.Marker
	retired bool
	expires time.Time
	timer   *time.Timer
}

type fakeClaim struct {
	lease.Entry
	on lease.LeaseID
}

type deathWatch struct {
	keys chan []string
}

// NewWorld is an empty etcd.
func NewWorld() *World {
	return &World{
		revision: 1, leases: make(map[lease.LeaseID]*fakeLease), claims: make(map[string]*fakeClaim),
		changed: make(chan struct{}), deaths: make(map[*deathWatch]struct{}),
	}
}

// Expire ends the lease of a session, as if its time had run out.
func (w *World) Expire(id flight.SessionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lid, l := range w.leases {
		if l.marker.Session == id {
			w.endLocked(lid)
		}
	}
}

// Sessions lists the sessions that live.
func (w *World) Sessions() []flight.SessionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []flight.SessionID
	for _, l := range w.leases {
		ids = append(ids, l.marker.Session)
	}
	slices.Sort(ids)
	return ids
}

// Revision is the newest one.
func (w *World) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// SetRevision makes the world forget, or skip ahead: what a restore from a backup does to the revision.
func (w *World) SetRevision(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision = revision
}

// SetStamp makes the guard key what it was not: another deployment's, or gone (nil).
func (w *World) SetGuardKey(s *lease.Stamp) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stamp = s
}

// Spoil changes a byte of a claim's value, as a disk may.
func (w *World) Spoil(key flight.Key, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := []byte(w.claims[key.String()].Value)
	b[at] ^= 0x80
	w.claims[key.String()].Value = string(b)
}

// GuardKey is the guard key; nil when there is none.
func (w *World) GuardKey() *lease.Stamp {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stamp
}

func (w *World) grant(stamp lease.Stamp, m lease.Marker) (lease.Granted, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLocked(stamp); err != nil {
		return lease.Granted{}, err
	}
	w.nextID++
	w.revision++
	id := w.nextID
	m.Lease = id
	l := &fakeLease{marker: m, expires: time.Now().Add(m.TTL)}
	l.timer = time.AfterFunc(m.TTL, func() { w.runOut(id) })
	w.leases[id] = l
	return lease.Granted{Lease: id, TTL: m.TTL, Revision: w.revision}, nil
}

// runOut ends a lease whose time is over; a renewal may have moved that.
func (w *World) runOut(id lease.LeaseID) {
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
	w.endLocked(id)
}

func (w *World) renew(id lease.LeaseID) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.leases[id]
	if l == nil {
		return 0, fmt.Errorf("%w: the fake's lease is gone", lease.ErrLost)
	}
	l.expires = time.Now().Add(l.marker.TTL)
	return l.marker.TTL, nil
}

func (w *World) revoke(id lease.LeaseID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(id)
}

// endLocked deletes a lease, its marker and its claims in one revision.
func (w *World) endLocked(id lease.LeaseID) {
	l := w.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(w.leases, id)
	w.revision++
	var keys []string
	for k, c := range w.claims {
		if c.on == id {
			keys = append(keys, k)
			delete(w.claims, k)
		}
	}
	slices.Sort(keys)
	w.tellLocked()
	if l.retired || len(keys) == 0 {
		return
	}
	for d := range w.deaths {
		select {
		case d.keys <- keys:
		default: // a hint that is lost; the watcher polls too
		}
	}
}

func (w *World) tellLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *World) checkLocked(stamp lease.Stamp) error {
	if w.stamp == nil || *w.stamp != stamp {
		return &lease.StampError{Found: w.stamp}
	}
	return nil
}

var errTwice = errors.New("leasetest: one key stands twice in a batch")

func (w *World) commit(stamp lease.Stamp, ops []*lease.Op) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLocked(stamp); err != nil {
		return 0, err
	}
	if twice(ops) {
		return 0, errTwice // etcd refuses the whole transaction
	}
	wrote, deleted := false, false
	next := w.revision + 1
	for _, o := range ops {
		w.applyLocked(o, next)
		wrote = wrote || o.Done
		deleted = deleted || o.Done && o.Kind == lease.OpRelease
	}
	if wrote {
		w.revision = next
	}
	if deleted {
		w.tellLocked()
	}
	for _, o := range ops {
		if o.Holder != nil {
			o.Holder.Seen = w.revision
		}
	}
	return w.revision, nil
}

func twice(ops []*lease.Op) bool {
	seen := make(map[string]bool, len(ops))
	for _, o := range ops {
		if o.Kind != lease.OpRetire && seen[o.Key] {
			return true
		}
		seen[o.Key] = true
	}
	return false
}

func (w *World) applyLocked(o *lease.Op, revision int64) {
	o.Done, o.Holder = false, nil
	switch o.Kind {
	case lease.OpClaim:
		l := w.leases[o.Lease]
		switch c := w.claims[o.Key]; {
		case c != nil:
			e := c.Entry
			o.Holder = &e
		case l != nil && l.marker.Session == o.Session:
			w.claims[o.Key] = &fakeClaim{lease.Entry{Key: o.Key, Value: o.Value, Revision: revision}, o.Lease}
			o.Done = true
		}
	case lease.OpRelease:
		if c := w.claims[o.Key]; c != nil && c.Revision == o.Revision {
			delete(w.claims, o.Key)
			o.Done = true
		}
	case lease.OpRetire:
		if l := w.leases[o.Lease]; l != nil {
			l.retired, o.Done = true, true
		}
	}
}

func (w *World) get(keys []string) ([]lease.Entry, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []lease.Entry
	for _, k := range keys {
		if c := w.claims[k]; c != nil {
			found = append(found, c.Entry)
		}
	}
	return found, w.revision
}

func (w *World) list() ([]lease.Entry, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]lease.Entry, 0, len(w.claims))
	for _, c := range w.claims {
		all = append(all, c.Entry)
	}
	slices.SortFunc(all, func(a, b lease.Entry) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return all, w.revision
}

func (w *World) markers(id flight.SessionID) []lease.Marker {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []lease.Marker
	for _, l := range w.leases {
		if !l.retired && (id == "" || l.marker.Session == id) {
			list = append(list, l.marker)
		}
	}
	return list
}

// gone waits until the key is not claimed as it was at that revision.
func (w *World) gone(ctx context.Context, key string, seen int64) {
	for {
		w.mu.Lock()
		c, changed := w.claims[key], w.changed
		w.mu.Unlock()
		if c == nil || c.Revision > seen {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (w *World) watchDeaths(ctx context.Context, lost func([]string)) error {
	d := &deathWatch{keys: make(chan []string, 64)}
	w.mu.Lock()
	w.deaths[d] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.deaths, d)
	}()
	for {
		select {
		case keys := <-d.keys:
			lost(keys)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
