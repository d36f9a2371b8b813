package flightdtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
	"github.com/flightd/flightd/remote"
)

// Flightd is a whole flightd in memory. It is an effect.Doer.
type Flightd struct {
	*executor.Executor
	// Ledger has the levers on the memory of flights.
	Ledger *Ledger
	// Leases has the levers on sessions and claims.
	Leases *leasetest.Fake
	// Sweeper ends the attempts of dead holders.
	Sweeper *executor.Sweeper
	remote  *remote.Service
}

// Remote serves callers that perform their effects themselves.
func (fd *Flightd) Remote() *remote.Service { return fd.remote }

// Options change a test double; the zero Options are right for most tests.
type Options struct {
	// Ledger is the memory to go on with, as after a restart; nil: a new one.
	Ledger *Ledger
	// Follower is what this process sees of its ledger, as a node does that is late; nil: all of it.
	Follower *Follower
	// Leases is the lease service to use, as of another node (see leasetest.Fake.Peer); nil: one of the ledger's, with
	// the claims that stand.
	Leases *leasetest.Fake
	// Events are told what happens.
	Events executor.Events
	// TTL of the executor's session; 0: 15 s.
	TTL time.Duration
	// Configure changes the executor's configuration last; nil: no change.
	Configure func(*executor.Config)
	// ConfigureRemote changes the configuration of the service for remote callers last; nil: no change.
	ConfigureRemote func(*remote.Config)
	// NoSweeper leaves dead holders unnoticed until Sweeper.Sweep is called.
	NoSweeper bool
}

// New makes a flightd that lives as long as the test.
func New(tb testing.TB) *Flightd { return Open(tb, Options{}) }

// Open makes a flightd with options. It is closed when the test ends.
func Open(tb testing.TB, o Options) *Flightd {
	tb.Helper()
	if o.Ledger == nil {
		o.Ledger = NewLedger()
	}
	var seen view = o.Ledger
	if o.Follower != nil {
		o.Ledger, seen = o.Follower.Ledger, o.Follower
	}
	if o.Leases == nil {
		o.Leases = o.Ledger.newLeases(tb, seen)
	}
	fd := &Flightd{Ledger: o.Ledger, Leases: o.Leases}
	fd.Sweeper = executor.NewSweeper(executor.SweeperConfig{Ledger: seen, Memory: seen, Sessions: seen, Leases: o.Leases, Events: o.Events})
	cfg := executor.Config{Ledger: seen, Memory: seen, Leases: o.Leases, Events: o.Events, TTL: o.TTL, Owner: "test"}
	rcfg := remote.Config{Ledger: seen, Memory: seen, Sessions: seen, Leases: o.Leases, Events: o.Events, TTL: o.TTL}
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
	if fd.remote, err = remote.New(rcfg); err != nil {
		tb.Fatalf("flightdtest: %v", err)
	}
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		if !o.NoSweeper {
			fd.Sweeper.Run(ctx)
		}
	}()
	tb.Cleanup(func() {
		stop()
		<-swept
		fd.heal()
		over, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(fd.remote.Close(over), fd.Executor.Close(over)); err != nil {
			tb.Errorf("flightdtest: %v", err)
		}
	})
	return fd
}

// view is what a process sees of the ledger: Ledger itself, or a Follower.
type view interface {
	executor.Ledger
	executor.Memory
	executor.Sessions
	lease.Guard
}

// newLeases is a lease service of one more process. With an etcd of its own it would be refused: a ledger does not accept
// one that has lost its past.
func (l *Ledger) newLeases(tb testing.TB, guard lease.Guard) *leasetest.Fake {
	tb.Helper()
	l.mu.Lock()
	if l.world == nil {
		l.world = leasetest.NewWorld()
	}
	world := l.world
	l.mu.Unlock()
	return leasetest.Open(tb, world, leasetest.NewLedger(), leasetest.Options{Guard: guard})
}

// heal ends what the test's levers left behind, so that everything can end.
func (fd *Flightd) heal() {
	fd.Leases.Thaw()
	fd.Leases.Partition(leasetest.CutNothing)
	fd.Ledger.Heal()
}

// Restart is a flightd of another process on the same ledger and the same leases, as after a crash or a deploy: what
// was claimed by this one stays claimed until its time to live is over. This one should be frozen or idle.
func (fd *Flightd) Restart(tb testing.TB, o Options) *Flightd {
	tb.Helper()
	o.Ledger = fd.Ledger
	var guard lease.Guard = fd.Ledger
	if o.Follower != nil {
		guard = o.Follower
	}
	o.Leases = fd.Leases.Peer(tb, leasetest.Options{Guard: guard})
	return Open(tb, o)
}

// Flight is what the ledger knows of a key; nil when it was never used.
func (fd *Flightd) Flight(key flight.Key) *flight.Flight {
	f, _ := fd.Ledger.Flight(key.FlightID())
	return f
}

// Resolve settles a flight in doubt, as a person does: flight.Happened, with what the provider answered,
// flight.DidNotHappen or flight.Fail. The test fails when the flight is not in doubt.
func (fd *Flightd) Resolve(tb testing.TB, key flight.Key, verb flight.Verb, externalID string, body []byte) {
	tb.Helper()
	f := fd.Flight(key)
	if f == nil || f.State != flight.InDoubt {
		tb.Fatalf("flightdtest: %s is not in doubt", key)
	}
	reply, err := fd.Ledger.Propose(context.Background(), &flight.Resolve{
		Key: key, Generation: f.Generation, Version: f.Version, Verb: verb, ExternalID: externalID,
		Body: flight.NewBlob("", body, flight.MaxReceiptBody), Who: "test",
	})
	if err != nil || reply.Decision != flight.Accepted {
		tb.Fatalf("flightdtest: resolve %s: %v, %v", key, reply.Decision, err)
	}
}

// Cancel asks for a flight's cancellation, as a person does.
func (fd *Flightd) Cancel(tb testing.TB, key flight.Key, why string) {
	tb.Helper()
	f := fd.Flight(key)
	if f == nil {
		tb.Fatalf("flightdtest: there is no %s", key)
	}
	reply, err := fd.Ledger.Propose(context.Background(), &flight.Cancel{Key: key, Generation: f.Generation, Who: "test", Why: why})
	if err != nil || reply.Decision != flight.Accepted {
		tb.Fatalf("flightdtest: cancel %s: %v, %v", key, reply.Decision, err)
	}
}
