package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// maxHolds is how many claims one etcd lease carries before a kept session takes another one beside it: leases with
// very many keys make etcd slow when they end.
const maxHolds = 2000

// term is the life of one etcd lease, as this process sees it. Once ended it never comes back: a renewal that is
// answered later changes nothing, and its lease id is not used again.
type term struct {
	desk   *Desk
	id     flight.SessionID
	lease  LeaseID
	ttl    time.Duration
	epoch  uint32
	kept   bool
	owner  string
	prefix string // of its claims' values
	window atomic.Pointer[Window]
	ctx    context.Context // ends with the term
	cancel context.CancelFunc
	ended  <-chan struct{} // that of ctx

	mu     sync.Mutex
	holds  map[*hold]struct{}
	cause  error // why it ended
	expiry *time.Timer
}

func (d *Desk) newTerm(m Marker, owner string, sent Instant) *term {
	t := &term{
		desk: d, id: m.Session, lease: m.Lease, ttl: m.TTL, epoch: m.Epoch, kept: m.Kept,
		holds: make(map[*hold]struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.ended = t.ctx.Done()
	t.setOwner(owner)
	w := NewWindow(sent, m.TTL)
	t.window.Store(&w)
	t.mu.Lock() // the timer may fire before it is stored
	defer t.mu.Unlock()
	t.expiry = time.AfterFunc(max(w.Left(d.cfg.Now()), 0), t.expire)
	return t
}

// setOwner names the owner of the claims to come. It must not be called once there are claims.
func (t *term) setOwner(owner string) {
	t.owner = owner
	t.prefix = recordPrefix(Record{
		Epoch: t.epoch, Boot: t.desk.cfg.Boot, Deployment: t.desk.cfg.Deployment, Session: t.id, Owner: owner,
	})
}

// trust is what is left of the window.
func (t *term) trust() time.Duration {
	select {
	case <-t.ended:
		return 0
	default:
		return t.window.Load().Left(t.desk.cfg.Now())
	}
}

// alive reports whether the term has not ended.
func (t *term) alive() bool {
	select {
	case <-t.ended:
		return false
	default:
		return true
	}
}

// expire ends the term when its window is shut; a renewal may have moved that moment.
func (t *term) expire() {
	left := t.window.Load().Left(t.desk.cfg.Now())
	if left <= 0 {
		t.end(errSilence)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.expiry.Reset(left)
	}
}

// renew asks etcd for a new window. The answer counts from the moment before it was asked.
func (t *term) renew(ctx context.Context) (time.Duration, error) {
	if !t.alive() {
		return 0, t.why()
	}
	sent := t.desk.cfg.Now()
	ttl, err := t.desk.cfg.Registry.Renew(ctx, t.lease)
	switch {
	case errors.Is(err, ErrLost):
		t.end(err)
		return 0, err
	case err != nil:
		err = unavailable("renewing the session", err)
		t.desk.cfg.Events.renewFailed(t.id, t.trust(), err)
		return 0, err
	}
	w := NewWindow(sent, ttl)
	for {
		old := t.window.Load()
		if !w.endsAfter(*old, sent) || t.window.CompareAndSwap(old, &w) {
			break
		}
	}
	if !t.alive() {
		return 0, t.why()
	}
	t.desk.cfg.Events.renewed(t.id, t.trust())
	return t.window.Load().Left(sent), nil
}

// why is the cause of the end.
func (t *term) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// silent reports whether the term ended only because no renewal of it was answered here in time: the session of a remote
// caller may live on, renewed through another node, and its claims with it.
func (t *term) silent() bool { return !t.kept && errors.Is(t.why(), errSilence) }

// add takes a hold in; not into a term that has ended.
func (t *term) add(h *hold) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != nil {
		return t.cause
	}
	t.holds[h] = struct{}{}
	return nil
}

func (t *term) drop(h *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, h)
}

// room reports whether the term lives and may take more claims.
func (t *term) room() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause == nil && len(t.holds) < maxHolds
}

// end ends the term and everything held under it, once, and gives the number of claims that ended. It does no I/O.
func (t *term) end(cause error) int {
	t.mu.Lock()
	if t.cause != nil {
		t.mu.Unlock()
		return 0
	}
	t.cause = cause
	holds := t.holds
	t.holds = nil
	t.expiry.Stop()
	t.cancel()
	t.mu.Unlock()
	for h := range holds {
		h.lose(cause)
	}
	t.desk.forget(t)
	t.desk.cfg.Events.termEnded(t.id, cause, len(holds))
	return len(holds)
}
