package leasetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/lease"
)

// Deployment is the default deployment of fakes.
const Deployment = "test-deployment"

// Fake is one node's lease service over an etcd in memory. It has the rules of package lease, and fault injection in
// the connection and in the etcd (Etcd). It implements lease.Service.
type Fake struct {
	*lease.Lessor
	Etcd   *Etcd
	Ledger *Ledger

	link        *link
	ledgerState lease.LedgerState
	suspended   atomic.Int64
}

// Options configure a fake; the zero Options are right for most tests.
type Options struct {
	Events     lease.Events
	Ledger     lease.LedgerState // nil: the fake's own Ledger
	Deployment string
	Node       string
	Tune       func(*lease.Config)
}

// New returns a fake with an etcd of its own. It is closed when the test ends.
func New(t testing.TB, o Options) *Fake {
	t.Helper()
	return Open(t, NewEtcd(), NewLedger(), o)
}

// Peer returns another node on the same etcd and the same ledger.
func (f *Fake) Peer(t testing.TB, o Options) *Fake {
	t.Helper()
	return Open(t, f.Etcd, f.Ledger, o)
}

// Open returns a node on that etcd, with that ledger. It is closed when the test ends.
func Open(t testing.TB, w *Etcd, ledger *Ledger, o Options) *Fake {
	t.Helper()
	f := &Fake{Etcd: w, Ledger: ledger, link: newLink(w)}
	cfg := lease.Config{
		Store: f.link, Ledger: o.Ledger, Deployment: o.Deployment, Node: o.Node, Events: o.Events, Now: f.now,
	}
	if cfg.Ledger == nil {
		cfg.Ledger = ledger
	}
	cfg.Deployment = cmp.Or(cfg.Deployment, Deployment)
	f.ledgerState = cfg.Ledger
	if o.Tune != nil {
		o.Tune(&cfg)
	}
	lessor, err := lease.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Lessor = lessor
	t.Cleanup(func() { f.closeAtEnd(t) })
	return f
}

// closeAtEnd removes all faults and closes the service.
func (f *Fake) closeAtEnd(t testing.TB) {
	f.Partition(CutNothing)
	f.Thaw()
	f.CommitDelayed()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.Close(ctx); err != nil {
		t.Errorf("closing the lease fake: %v", err)
	}
	f.link.delayedCommits.Wait()
}

func (f *Fake) now() clock.Instant {
	now := time.Now()
	return clock.Instant{Time: now, SinceBoot: time.Duration(now.UnixNano() + f.suspended.Load())}
}

// Suspend adds time that the monotonic clock does not count, as in a suspended virtual machine.
func (f *Fake) Suspend(d time.Duration) { f.suspended.Add(int64(d)) }

// Freeze stops all requests between this node and etcd, as if the node had got SIGSTOP. Its local time continues.
func (f *Fake) Freeze() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	select {
	case <-f.link.thawed:
		f.link.thawed = make(chan struct{})
	default:
	}
}

// Thaw ends Freeze: waiting requests are sent.
func (f *Fake) Thaw() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	select {
	case <-f.link.thawed:
	default:
		close(f.link.thawed)
	}
}

// Partition cuts the connection to etcd in one direction, or restores it (CutNothing). Requests in flight are not
// affected.
func (f *Fake) Partition(c Cut) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.cut = c
}

// LoseAnswers performs the next n batches of claims and releases and loses their answers.
func (f *Fake) LoseAnswers(n int) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.answersToLose = n
}

// DelayCommits answers batches with an error from now on, and performs them only at CommitDelayed.
func (f *Fake) DelayCommits() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.delayed = make(chan struct{})
}

// CommitDelayed ends DelayCommits and performs the delayed batches.
func (f *Fake) CommitDelayed() {
	f.link.mu.Lock()
	delayed := f.link.delayed
	f.link.delayed = nil
	f.link.mu.Unlock()
	if delayed != nil {
		close(delayed)
		f.link.delayedCommits.Wait()
	}
}

// SlowAnswers delays all answers by d.
func (f *Fake) SlowAnswers(d time.Duration) {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.answerDelay = d
}

// LoseHints makes Watch miss all deletions from now on.
func (f *Fake) LoseHints() {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	f.link.loseHints = true
}

// Renewals returns the number of renewals sent.
func (f *Fake) Renewals() int {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	return f.link.renews
}

// Commits returns the number of batches sent.
func (f *Fake) Commits() int {
	f.link.mu.Lock()
	defer f.link.mu.Unlock()
	return f.link.commits
}

// ClaimFromOtherNode claims the key on another node, under a local session that lasts until the end of the test.
func (f *Fake) ClaimFromOtherNode(t testing.TB, key flight.Key, owner string) lease.Lease {
	t.Helper()
	other := f.Peer(t, Options{Ledger: f.ledgerState})
	s, err := other.NewSession(context.Background(), lease.Spec{Owner: owner, AutoRenew: true})
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

// NewNonce returns a random nonce.
func NewNonce() (n flight.Nonce) {
	_, _ = rand.Read(n[:])
	return n
}

// Ledger implements lease.LedgerState in memory.
type Ledger struct {
	mu      sync.Mutex // guards the fields below
	epoch   uint32
	counter uint64
}

// NewLedger returns a ledger in epoch 1 without a recorded counter.
func NewLedger() *Ledger { return &Ledger{epoch: 1} }

// Header implements lease.LedgerState.
func (l *Ledger) Header() flight.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	return flight.Header{LeaseEpoch: l.epoch, GuardCounter: l.counter}
}

// Record records a counter of the guard key, as flight.RecordGuard does.
func (l *Ledger) Record(counter uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counter = max(l.counter, counter)
}

// RaiseEpoch raises the lease epoch, as an operator does to accept a restored etcd.
func (l *Ledger) RaiseEpoch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.counter = 0
}
