package flightdtest

import (
	"context"
	"testing"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease/leasetest"
)

// Flightd is a whole flightd in memory. It is an effect.Doer.
type Flightd struct {
	*executor.Executor
	// Ledger has the levers on the memory of flights.
	Ledger *Ledger
	// Leases has the levers on the right to fly.
	Leases *leasetest.Fake
}

// Options change a test double; the zero Options are right for most tests.
type Options struct {
	// Ledger is the memory to go on with, as after a restart; nil: a new one.
	Ledger *Ledger
	// Leases is the lease service to use, as of another node (see leasetest.Fake.Peer); nil: one of the ledger's, with
	// the claims that stand.
	Leases *leasetest.Fake
	// Events are told what happens.
	Events executor.Events
	// TTL of the executor's session; 0: 15 s.
	TTL time.Duration
	// Configure changes the executor's configuration last; nil: no change.
	Configure func(*executor.Config)
	// NoSweeper leaves dead holders unnoticed until Sweep is called.
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
	if o.Leases == nil {
		o.Leases = o.Ledger.newLeases(tb)
	}
	cfg := executor.Config{Ledger: o.Ledger, Memory: o.Ledger, Leases: o.Leases, Events: o.Events, TTL: o.TTL, Owner: "test"}
	if o.Configure != nil {
		o.Configure(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	ex, err := executor.New(ctx, cfg)
	if err != nil {
		tb.Fatalf("flightdtest: %v", err)
	}
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		if !o.NoSweeper {
			ex.Run(ctx)
		}
	}()
	fd := &Flightd{Executor: ex, Ledger: o.Ledger, Leases: o.Leases}
	tb.Cleanup(func() {
		stop()
		<-swept
		fd.heal()
		over, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := ex.Close(over); err != nil {
			tb.Errorf("flightdtest: %v", err)
		}
	})
	return fd
}

// newLeases is a lease service of one more process. With an etcd of its own it would be refused: a ledger does not accept
// one that has lost its past.
func (l *Ledger) newLeases(tb testing.TB) *leasetest.Fake {
	tb.Helper()
	l.mu.Lock()
	if l.world == nil {
		l.world = leasetest.NewWorld()
	}
	world := l.world
	l.mu.Unlock()
	return leasetest.Open(tb, world, leasetest.NewLedger(), leasetest.Options{Guard: l})
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
	o.Leases = fd.Leases.Peer(tb, leasetest.Options{Guard: fd.Ledger})
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
