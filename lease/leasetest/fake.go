package leasetest

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Deployment is the id under which fakes work unless the options say otherwise.
const Deployment = "test-deployment"

// Fake is one node's lease service over an etcd in memory: the rules of package lease as they are, with levers on the
// connection and on the etcd (World). It implements lease.Service.
type Fake struct {
	*lease.Lessor
	World  *World
	Ledger *Ledger

	link      *link
	guard     lease.Guard
	suspended atomic.Int64
}

// Options change a fake; the zero Options are right for most tests.
type Options struct {
	Events     lease.Events
	Guard      lease.Guard // nil: the fake's own Ledger
	Deployment string
	Node       string
	Tune       func(*lease.Config)
}

// New is a fake with a world of its own. It is closed when the test ends.
func New(t testing.TB, o Options) *Fake {
	t.Helper()
	return Open(t, NewWorld(), NewLedger(), o)
}

// Peer is another node on the same etcd and the same ledger.
func (f *Fake) Peer(t testing.TB, o Options) *Fake {
	t.Helper()
	return Open(t, f.World, f.Ledger, o)
}

// Open is a node on that etcd, with that ledger. It is closed when the test ends.
func Open(t testing.TB, w *World, ledger *Ledger, o Options) *Fake {
	t.Helper()
	f := &Fake{World: w, Ledger: ledger, link: newLink(w)}
	cfg := lease.Config{
		Store: f.link, Guard: o.Guard, Deployment: o.Deployment, Node: o.Node, Events: o.Events, Now: f.now,
	}
	if cfg.Guard == nil {
		cfg.Guard = ledger
	}
	if cfg.Deployment == "" {
		cfg.Deployment = Deployment
	}
	f.guard = cfg.Guard
	if o.Tune != nil {
		o.Tune(&cfg)
	}
	lessor, err := lease.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Lessor = lessor
	t.Cleanup(func() { f.shut(t) })
	return f
}

// shut closes whatever state the levers are in.
func (f *Fake) shut(t testing.TB) {
	f.Partition(CutNothing)
	f.Thaw()
	f.LandLate()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Close(ctx); err != nil {
		t.Errorf("closing the lease fake: %v", err)
	}
	f.link.landing.Wait()
}

func (f *Fake) now() lease.Instant {
	return lease.InstantOf(time.Now(), time.Duration(f.suspended.Load()))
}

// Suspend lets time pass on the machine that its monotonic clock does not count, as a suspended virtual machine does.
func (f *Fake) Suspend(d time.Duration) { f.suspended.Add(int64(d)) }

// Freeze stops everything between this node and etcd, as SIGSTOP of the node looks to etcd. Its local time goes on.
func (f *Fake) Freeze() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	select {
	case <-f.link.thawed:
		f.link.thawed = make(chan struct{})
	default:
	}
}

// Thaw ends Freeze: requests that waited go out now.
func (f *Fake) Thaw() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	select {
	case <-f.link.thawed:
	default:
		close(f.link.thawed)
	}
}

// Partition cuts the connection to etcd in one direction, or heals it (CutNothing). Requests under way keep their fate.
func (f *Fake) Partition(c Cut) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.cut = c
}

// LoseAnswers lets the next n batches of claims and releases take effect and loses their answers.
func (f *Fake) LoseAnswers(n int) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.lose = n
}

// Delay answers batches with an error from now on, and lets them take effect only at LandLate.
func (f *Fake) Delay() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.late = make(chan struct{})
}

// LandLate ends Delay: what was sent meanwhile takes effect now, or soon after it returned.
func (f *Fake) LandLate() {
	f.link.mu.Lock()
	late := f.link.late
	f.link.late = nil
	f.link.mu.Unlock()
	if late != nil {
		close(late)
		f.link.landing.Wait()
	}
}

// Slow lets answers come that much later.
func (f *Fake) Slow(d time.Duration) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.slow = d
}

// LoseHints makes watches miss everything from now on.
func (f *Fake) LoseHints() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.deaf = true
}

// Renewals is how many renewals were sent.
func (f *Fake) Renewals() int {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	return f.link.renews
}

// Commits is how many batches were sent.
func (f *Fake) Commits() int {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	return f.link.commits
}

// HoldElsewhere claims the key for somebody on another node, under a session that never ends by itself within the test.
func (f *Fake) HoldElsewhere(t testing.TB, key flight.Key, owner string) lease.Lease {
	t.Helper()
	other := f.Peer(t, Options{Guard: f.guard})
	s, err := other.NewSession(context.Background(), lease.Spec{Owner: owner, Kept: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Reserve(context.Background(), key, NewNonce())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Claim(context.Background()); err != nil {
		t.Fatal(err)
	}
	return l
}

// NewNonce is a nonce that nobody has used.
func NewNonce() (n flight.Nonce) {
	_, _ = rand.Read(n[:])
	return n
}

// Ledger is the guard that a fake asks: what the ledger would know.
type Ledger struct {
	mu      sync.Mutex
	epoch   uint32
	counter uint64
}

// NewLedger is a ledger in its first epoch that has recorded no counter.
func NewLedger() *Ledger { return &Ledger{epoch: 1} }

// Epoch implements lease.Guard.
func (l *Ledger) Epoch() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Counter implements lease.Guard.
func (l *Ledger) Counter() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counter
}

// Record records a counter of the guard key, as flight.RecordGuard does.
func (l *Ledger) Record(counter uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counter = max(l.counter, counter)
}

// RaiseEpoch is the operator's word that etcd's lost past is accepted.
func (l *Ledger) RaiseEpoch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.counter = 0
}
