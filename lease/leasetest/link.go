package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Cut says which direction of the connection between a node and its etcd is dead.
type Cut int

// The cuts.
const (
	CutNothing  Cut = iota
	CutRequests     // nothing arrives at etcd
	CutAnswers      // everything arrives, no answer comes back
)

// errBroken is what a lost connection looks like: nobody knows what happened.
var errBroken = errors.New("leasetest: the connection broke")

// link is a node's connection to the world: lease.Registry with levers.
type link struct {
	world *World

	mu      sync.Mutex
	cut     Cut
	thawed  chan struct{} // closed unless frozen
	lose    int           // answers of commits to lose
	late    chan struct{} // commits answer with an error and land when it is closed; nil: off
	landing sync.WaitGroup
	deaf    bool          // hints never come
	slow    time.Duration // answers come that much later
	commits int
	renews  int
}

func newLink(w *World) *link {
	l := &link{world: w, thawed: make(chan struct{})}
	close(l.thawed)
	return l
}

// pass carries one request there and its answer back.
func (l *link) pass(ctx context.Context, do func()) error {
	l.mu.Lock()
	thawed, cut, slow := l.thawed, l.cut, l.slow
	l.mu.Unlock()
	select {
	case <-thawed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if cut != CutRequests {
		do()
	}
	if cut != CutNothing {
		<-ctx.Done()
		return ctx.Err()
	}
	return linger(ctx, slow)
}

// linger is the way back of a slow answer.
func linger(ctx context.Context, slow time.Duration) error {
	if slow == 0 {
		return nil
	}
	t := time.NewTimer(slow)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stamp implements lease.Stamps.
func (l *link) Stamp(ctx context.Context) (found *lease.Stamp, revision int64, err error) {
	err = l.pass(ctx, func() {
		l.world.mu.Lock()
		defer l.world.mu.Unlock()
		found, revision = l.world.stamp, l.world.revision
	})
	return found, revision, err
}

// SetStamp implements lease.Stamps.
func (l *link) SetStamp(ctx context.Context, old *lease.Stamp, s lease.Stamp) error {
	var refused error
	err := l.pass(ctx, func() {
		w := l.world
		w.mu.Lock()
		defer w.mu.Unlock()
		if (old == nil) != (w.stamp == nil) || old != nil && *old != *w.stamp {
			refused = &lease.StampError{Found: w.stamp}
			return
		}
		w.stamp = &s
		w.revision++
	})
	return errors.Join(err, refused)
}

// Grant implements lease.Leases.
func (l *link) Grant(ctx context.Context, stamp lease.Stamp, m lease.Marker) (g lease.Granted, err error) {
	var refused error
	if err := l.pass(ctx, func() { g, refused = l.world.grant(stamp, m) }); err != nil {
		return lease.Granted{}, err
	}
	return g, refused
}

// Renew implements lease.Leases.
func (l *link) Renew(ctx context.Context, id lease.LeaseID) (ttl time.Duration, err error) {
	l.mu.Lock()
	l.renews++
	l.mu.Unlock()
	var refused error
	if err := l.pass(ctx, func() { ttl, refused = l.world.renew(id) }); err != nil {
		return 0, err
	}
	return ttl, refused
}

// Revoke implements lease.Leases.
func (l *link) Revoke(ctx context.Context, id lease.LeaseID) error {
	return l.pass(ctx, func() { l.world.revoke(id) })
}

// Markers implements lease.Leases.
func (l *link) Markers(ctx context.Context, id flight.SessionID) (list []lease.Marker, err error) {
	err = l.pass(ctx, func() { list = l.world.markers(id) })
	return list, err
}

// Commit implements lease.Claims.
func (l *link) Commit(ctx context.Context, stamp lease.Stamp, ops []*lease.Op) (revision int64, err error) {
	l.mu.Lock()
	l.commits++
	late := l.late
	lose := l.lose > 0 && late == nil
	if lose {
		l.lose--
	}
	l.mu.Unlock()
	if late != nil {
		l.landLater(late, stamp, ops)
		return 0, errBroken
	}
	var refused error
	if err := l.pass(ctx, func() { revision, refused = l.world.commit(stamp, ops) }); err != nil {
		return 0, err
	}
	if lose && refused == nil {
		for _, o := range ops {
			o.Done, o.Holder = false, nil
		}
		return 0, errBroken
	}
	return revision, refused
}

// landLater carries out copies of the operations when late is closed, one by one as the answers do not matter.
func (l *link) landLater(late chan struct{}, stamp lease.Stamp, ops []*lease.Op) {
	copies := make([]*lease.Op, len(ops))
	for i, o := range ops {
		c := *o
		copies[i] = &c
	}
	l.landing.Go(func() {
		<-late
		_, _ = l.world.commit(stamp, copies)
	})
}

// Get implements lease.Claims.
func (l *link) Get(ctx context.Context, keys []string) (found []lease.Entry, revision int64, err error) {
	err = l.pass(ctx, func() { found, revision = l.world.get(keys) })
	return found, revision, err
}

// List implements lease.Claims.
func (l *link) List(ctx context.Context) (all []lease.Entry, revision int64, err error) {
	err = l.pass(ctx, func() { all, revision = l.world.list() })
	return all, revision, err
}

// Gone implements lease.Hints.
func (l *link) Gone(ctx context.Context, key string, seen int64) {
	l.mu.Lock()
	deaf := l.deaf
	l.mu.Unlock()
	if deaf || l.pass(ctx, func() {}) != nil {
		<-ctx.Done()
		return
	}
	l.world.gone(ctx, key, seen)
}

// Deaths implements lease.Hints.
func (l *link) Deaths(ctx context.Context, lost func([]string)) error {
	if err := l.pass(ctx, func() {}); err != nil {
		return err
	}
	return l.world.watchDeaths(ctx, lost)
}
