package flightdtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
	"github.com/flightd/flightd/remote"
)

// Flightd is a complete flightd in memory. It implements effect.Doer.
type Flightd struct {
	*executor.Executor
	// Ledger is the ledger, with its faults.
	Ledger *Ledger
	// Leases is the lease service, with its faults.
	Leases *leasetest.Fake
	// Sweeper ends attempts whose session has ended.
	Sweeper *executor.Sweeper
	remote  *remote.Service
	pools   *remote.Pools
}

// Remote returns the service for callers that perform their effects themselves.
func (fl *Flightd) Remote() *remote.Service { return fl.remote }

// Options configure a Flightd. The zero Options suit most tests.
type Options struct {
	// Ledger is an existing ledger, as after a restart; nil: a new one.
	Ledger *Ledger
	// Follower is the view that this process has of its ledger, as on a node that lags; nil: no lag.
	Follower *Follower
	// Leases is the lease service, as of another node (see leasetest.Fake.Peer); nil: a new one over the ledger's etcd,
	// with the existing claims.
	Leases *leasetest.Fake
	// Events receives the events.
	Events executor.Events
	// TTL is that of the executor's session; 0: 15 s.
	TTL time.Duration
	// Configure changes the executor's configuration, after all other options; nil: no change.
	Configure func(*executor.Config)
	// ConfigureRemote does the same for the service for remote callers.
	ConfigureRemote func(*remote.Config)
	// Paused reports whether no job of an action is handed out; nil: all are.
	Paused func(namespace, action string) bool
	// NoSweeper does not run the sweeper: call Sweeper.Sweep.
	NoSweeper bool
}

// New makes a Flightd that is closed when the test ends.
func New(tb testing.TB) *Flightd { return Open(tb, Options{}) }

// Open makes a Flightd with options. It is closed when the test ends.
func Open(tb testing.TB, o Options) *Flightd {
	tb.Helper()
	if o.Ledger == nil {
		o.Ledger = NewLedger()
	}
	var seen ledgerView = o.Ledger
	if o.Follower != nil {
		o.Ledger, seen = o.Follower.Ledger, o.Follower
	}
	if o.Leases == nil {
		o.Leases = o.Ledger.newLeases(tb, seen)
	}
	fd := &Flightd{Ledger: o.Ledger, Leases: o.Leases}
	fd.Sweeper = executor.NewSweeper(executor.SweeperConfig{Ledger: seen, Reader: seen, Sessions: seen, Leases: o.Leases, Events: o.Events})
	cfg := executor.Config{Ledger: seen, Reader: seen, Leases: o.Leases, Events: o.Events, TTL: o.TTL, Owner: "test"}
	rcfg := remote.Config{Ledger: seen, Reader: seen, Sessions: seen, Leases: o.Leases, Events: o.Events, TTL: o.TTL}
	if !o.NoSweeper {
		cfg.Checker, rcfg.Checker = fd.Sweeper, fd.Sweeper
	}
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	if o.ConfigureRemote != nil {
		o.ConfigureRemote(&rcfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	var err error
	if fd.Executor, err = executor.New(ctx, cfg); err != nil {
		tb.Fatalf("flightdtest: %v", err)
	}
	if fd.remote, err = remote.New(context.Background(), rcfg); err != nil {
		tb.Fatalf("flightdtest: %v", err)
	}
	fd.pools = remote.NewPools(fd.remote, jobs{o.Ledger, o.Paused})
	swept := make(chan struct{})
	var pools sync.WaitGroup
	pools.Go(func() { fd.pools.Run(ctx) })
	go func() {
		defer close(swept)
		if !o.NoSweeper {
			fd.Sweeper.Run(ctx)
		}
	}()
	tb.Cleanup(func() {
		stop()
		<-swept
		pools.Wait()
		fd.healAll()
		over, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(fd.remote.Close(over), fd.Executor.Close(over)); err != nil {
			tb.Errorf("flightdtest: %v", err)
		}
	})
	return fd
}

// ledgerView is the ledger as one process sees it: Ledger itself, or a Follower.
type ledgerView interface {
	executor.Ledger
	executor.Reader
	executor.Sessions
	lease.LedgerState
}

// newLeases makes the lease service of one more process. All share one etcd: a ledger rejects an etcd that has lost its
// data.
func (l *Ledger) newLeases(tb testing.TB, guard lease.LedgerState) *leasetest.Fake {
	tb.Helper()
	l.mu.Lock()
	if l.etcd == nil {
		l.etcd = leasetest.NewEtcd()
	}
	world := l.etcd
	l.mu.Unlock()
	return leasetest.Open(tb, world, leasetest.NewLedger(), leasetest.Options{Ledger: guard})
}

// healAll ends all faults, so that everything can be closed.
func (fl *Flightd) healAll() {
	fl.Leases.Thaw()
	fl.Leases.Partition(leasetest.CutNothing)
	fl.Ledger.Heal()
}

// Restart makes a Flightd of another process on the same ledger and leases, as after a crash or a deploy. The claims of
// fd stay until their time to live is over. fd should be frozen or idle.
func (fl *Flightd) Restart(tb testing.TB, o Options) *Flightd {
	tb.Helper()
	o.Ledger = fl.Ledger
	var guard lease.LedgerState = fl.Ledger
	if o.Follower != nil {
		guard = o.Follower
	}
	o.Leases = fl.Leases.Peer(tb, leasetest.Options{Ledger: guard})
	return Open(tb, o)
}

// Flight returns the flight of a key, or nil if the key was never used.
func (fl *Flightd) Flight(key flight.Key) *flight.Flight {
	f, _ := fl.Ledger.Flight(key.FlightID())
	return f
}

// Resolve resolves a flight in doubt, as a person does: flight.FindingHappened, with the provider's answer,
// flight.FindingNotHappened or flight.FindingFail. The test fails when the flight is not in doubt.
func (fl *Flightd) Resolve(tb testing.TB, key flight.Key, verb flight.Finding, externalID string, body []byte) {
	tb.Helper()
	f := fl.Flight(key)
	if f == nil || f.State != flight.StateInDoubt {
		tb.Fatalf("flightdtest: %s is not in doubt", key)
	}
	reply, err := fl.Ledger.Propose(context.Background(), &flight.Resolve{
		Key: key, Generation: f.Generation, Version: f.Version, Finding: verb, ExternalID: externalID,
		Body: flight.NewBlob("", body, flight.MaxReceiptBody), Actor: "test",
	})
	if err != nil || reply.Decision != flight.DecisionAccepted {
		tb.Fatalf("flightdtest: resolve %s: %v, %v", key, reply.Decision, err)
	}
}

// Cancel requests a flight's cancellation, as a person does.
func (fl *Flightd) Cancel(tb testing.TB, key flight.Key, why string) {
	tb.Helper()
	f := fl.Flight(key)
	if f == nil {
		tb.Fatalf("flightdtest: there is no %s", key)
	}
	reply, err := fl.Ledger.Propose(context.Background(), &flight.Cancel{Key: key, Generation: f.Generation, Actor: "test", Reason: why})
	if err != nil || reply.Decision != flight.DecisionAccepted {
		tb.Fatalf("flightdtest: cancel %s: %v, %v", key, reply.Decision, err)
	}
}
