package leasetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Stage is what the conformance suite needs of an implementation: nodes on one etcd and one ledger, and levers.
type Stage interface {
	// Node starts a service that is closed when the test ends. It uses Node, Deployment, Guard and Events of the options;
	// without a Guard it asks the stage's ledger.
	Node(t testing.TB, o Options) Node
	// Ledger is what the nodes' guards ask.
	Ledger() *Ledger
	// Expire ends the etcd lease of a session.
	Expire(t testing.TB, id flight.SessionID)
	// DropGuardKey deletes the guard key.
	DropGuardKey(t testing.TB)
}

// Node is one service with a connection of its own.
type Node interface {
	lease.Service
	lease.Remover
	Ready(ctx context.Context) error
	Partition(c Cut)
}

// Factory makes a stage for each case, and may run the case in a bubble.
type Factory struct {
	Stage  func(t testing.TB) Stage
	Within func(t *testing.T, run func(t *testing.T)) // nil: run directly
	Uncut  bool                                       // there is no connection that could be cut: leave those cases out
}

// TTL is that of the suite's sessions: the shortest that can be asked for.
const TTL = lease.MinTTL

// Run is the examination that every implementation passes. It waits for events, never for durations; over a real etcd
// some cases last as long as a lease.
func Run(t *testing.T, f Factory) {
	for _, group := range [...][]testCase{claimCases, sessionCases, lossCases, guardCases} {
		for _, c := range group {
			if c.cuts && f.Uncut {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				run := func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					c.run(&exam{T: t, Stage: f.Stage(t), ctx: ctx})
				}
				if f.Within != nil {
					f.Within(t, run)
					return
				}
				run(t)
			})
		}
	}
}

type testCase struct {
	name string
	run  func(x *exam)
	cuts bool // it cuts the connection
}

// exam is one case being run. Its helpers end the test on errors.
type exam struct {
	*testing.T
	Stage
	ctx context.Context
}

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func (x *exam) node(o Options) Node {
	x.Helper()
	return x.Node(x.T, o)
}

func (x *exam) kept(n lease.Service, owner string) lease.Session {
	x.Helper()
	s, err := n.NewSession(x.ctx, lease.Spec{TTL: TTL, Owner: owner, Kept: true})
	if err != nil {
		x.Fatalf("new session: %v", err)
	}
	return s
}

func (x *exam) remote(n lease.Service, ttl time.Duration) lease.Session {
	x.Helper()
	s, err := n.NewSession(x.ctx, lease.Spec{TTL: ttl, Owner: "remote"})
	if err != nil {
		x.Fatalf("new session: %v", err)
	}
	return s
}

func (x *exam) take(s lease.Session, k flight.Key) lease.Lease {
	x.Helper()
	l, err := s.Acquire(x.ctx, k)
	if err != nil {
		x.Fatalf("acquire %s: %v", k, err)
	}
	return l
}

// free waits until the key can be claimed at once, claims it and lets it go.
func (x *exam) free(s lease.Session, k flight.Key) flight.Claim {
	x.Helper()
	l := x.take(s, k)
	l.Release()
	return l.Claim()
}

// waits asks for the key once, and gives the error.
func (x *exam) waits(s lease.Session, k flight.Key) error {
	x.Helper()
	l, err := s.TryAcquire(x.ctx, k)
	if err == nil {
		l.Release()
	}
	return err
}

func (x *exam) held(s lease.Session, k flight.Key, by flight.Claim) {
	x.Helper()
	l, err := s.TryAcquire(x.ctx, k)
	if err == nil {
		x.Fatalf("%s was claimed twice: %+v beside %+v", k, l.Claim(), by)
	}
	var held *lease.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lease.ErrHeld) {
		x.Fatalf("try %s: %v, want a HeldError", k, err)
	}
	if held.Claim != by || held.Key != k {
		x.Fatalf("%s is said to be held as %+v, want %+v", held.Key, held.Claim, by)
	}
}

// dies waits for the end of the lease and checks its cause.
func (x *exam) dies(l lease.Lease, cause error) {
	x.Helper()
	select {
	case <-l.Context().Done():
	case <-x.ctx.Done():
		x.Fatal("the lease does not end")
	}
	if got := context.Cause(l.Context()); !errors.Is(got, cause) {
		x.Fatalf("the lease ended with %v, want %v", got, cause)
	}
	if l.Trust() > 0 {
		x.Fatalf("a lease that ended is trusted for %v", l.Trust())
	}
}

func (x *exam) wants(err, class error) {
	x.Helper()
	if !errors.Is(err, class) {
		x.Fatalf("got %v, want %v", err, class)
	}
}

func (x *exam) ok(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}
