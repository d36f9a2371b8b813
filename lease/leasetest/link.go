package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Cut is a partition of the connection between a node and its etcd.
type Cut int

// The partitions.
const (
	CutNothing  Cut = iota
	CutRequests     // requests are lost
	CutAnswers      // requests arrive, answers are lost
)

// errBroken is the error of a broken connection: the result of the request is unknown.
var errBroken = errors.New("leasetest: the connection broke")

// link is a node's connection to an Etcd. It implements lease.Store with fault injection.
type link struct {
	etcd *Etcd

	mu             sync.Mutex // guards the fields below, except delayedCommits
	cut            Cut
	thawed         chan struct{}  // closed unless frozen
	answersToLose  int            // number of answers to commits to lose
	delayed        chan struct{}  // commits fail, and are performed when it is closed; nil: off
	delayedCommits sync.WaitGroup // goroutines of delayed commits
	loseHints      bool           // Watch reports nothing
	answerDelay    time.Duration  // delay of answers
	commits        int            // number of commits sent
	renews         int            // number of renewals sent
}

var _ lease.Store = (*link)(nil)

func newLink(w *Etcd) *link {
	l := &link{etcd: w, thawed: make(chan struct{})}
	close(l.thawed)
	return l
}

// roundTrip performs one request, subject to the faults.
func (l *link) roundTrip(ctx context.Context, do func()) error {
	l.mu.Lock()
	thawed, cut, slow := l.thawed, l.cut, l.answerDelay
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
	return delay(ctx, slow)
}

// delay waits for a slow answer.
func delay(ctx context.Context, slow time.Duration) error {
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

func (l *link) ReadGuard(ctx context.Context) (state lease.GuardState, err error) {
	err = l.roundTrip(ctx, func() { state, _ = l.etcd.readLiving(nil) })
	return state, err
}

func (l *link) ReadLiving(ctx context.Context, ids []flight.SessionID) (state lease.GuardState, living []flight.SessionID, err error) {
	err = l.roundTrip(ctx, func() { state, living = l.etcd.readLiving(ids) })
	return state, living, err
}

func (l *link) SetOwnership(ctx context.Context, old *lease.Ownership, own lease.Ownership) error {
	var refused error
	err := l.roundTrip(ctx, func() { refused = l.etcd.setOwnership(old, own) })
	return errors.Join(err, refused)
}

func (l *link) RaiseCounter(ctx context.Context, own lease.Ownership, from uint64) (raised bool, err error) {
	var refused error
	err = l.roundTrip(ctx, func() { raised, refused = l.etcd.raiseCounter(own, from) })
	return raised, errors.Join(err, refused)
}

func (l *link) Grant(ctx context.Context, own lease.Ownership, m lease.SessionKey) (g lease.Granted, err error) {
	var refused error
	if err := l.roundTrip(ctx, func() { g, refused = l.etcd.grant(own, m) }); err != nil {
		return lease.Granted{}, err
	}
	return g, refused
}

func (l *link) Renew(ctx context.Context, id lease.LeaseID) (ttl time.Duration, err error) {
	l.mu.Lock()
	l.renews++
	l.mu.Unlock()
	var refused error
	if err := l.roundTrip(ctx, func() { ttl, refused = l.etcd.renew(id) }); err != nil {
		return 0, err
	}
	return ttl, refused
}

func (l *link) Revoke(ctx context.Context, id lease.LeaseID) error {
	return l.roundTrip(ctx, func() { l.etcd.revoke(id) })
}

func (l *link) SessionKey(ctx context.Context, id flight.SessionID) (m *lease.SessionKey, err error) {
	err = l.roundTrip(ctx, func() { m = l.etcd.SessionKey(id) })
	return m, err
}

func (l *link) SessionKeys(ctx context.Context) (list []lease.SessionKey, err error) {
	err = l.roundTrip(ctx, func() { list = l.etcd.sessionKeys() })
	return list, err
}

func (l *link) WatchSessionKeys(ctx context.Context, deleted func(flight.SessionID)) error {
	if err := l.roundTrip(ctx, func() {}); err != nil {
		return err
	}
	return l.etcd.watchSessionKeys(ctx, func(id flight.SessionID) {
		l.mu.Lock()
		loseHints := l.loseHints
		l.mu.Unlock()
		if !loseHints && l.roundTrip(ctx, func() {}) == nil {
			deleted(id)
		}
	})
}

func (l *link) Commit(ctx context.Context, own lease.Ownership, ops []*lease.Op) error {
	l.mu.Lock()
	l.commits++
	delayed := l.delayed
	lose := l.answersToLose > 0 && delayed == nil
	if lose {
		l.answersToLose--
	}
	l.mu.Unlock()
	if delayed != nil {
		l.commitLater(delayed, own, ops)
		return errBroken
	}
	var refused error
	if err := l.roundTrip(ctx, func() { refused = l.etcd.commit(own, ops) }); err != nil {
		return err
	}
	if lose && refused == nil {
		for _, o := range ops {
			o.Done, o.Holder = false, nil
		}
		return errBroken
	}
	return refused
}

// commitLater performs copies of the operations when delayed is closed.
func (l *link) commitLater(delayed chan struct{}, own lease.Ownership, ops []*lease.Op) {
	copies := make([]*lease.Op, len(ops))
	for i, o := range ops {
		c := *o
		copies[i] = &c
	}
	l.delayedCommits.Go(func() {
		<-delayed
		_ = l.etcd.commit(own, copies)
	})
}

func (l *link) List(ctx context.Context) (all []lease.RawClaim, err error) {
	err = l.roundTrip(ctx, func() { all = l.etcd.list() })
	return all, err
}
