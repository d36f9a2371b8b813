package leasetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Backend is what the conformance suite needs of an implementation: nodes on one etcd and one ledger, and levers.
type Backend interface {
	// Node starts a service that is closed when the test ends. It uses Node, Deployment, Guard and Events of the options;
	// without a Guard it asks the backend's ledger.
	Node(t testing.TB, o Options) Node
	// Ledger is what the nodes' guards ask.
	Ledger() *Ledger
	// Expire ends the etcd lease of a session.
	Expire(t testing.TB, id flight.SessionID)
	// DropGuardKey deletes the guard key.
	DropGuardKey(t testing.TB)
	// SetCounter rewrites the counter beside the guard key; 0 deletes it.
	SetCounter(t testing.TB, n uint64)
	// MarkedOneShot reports whether the session's marker is in etcd and says that the session is a one-shot one.
	MarkedOneShot(t testing.TB, id flight.SessionID) bool
}

// Node is one service with a connection of its own.
type Node interface {
	lease.Service
	Ready(ctx context.Context) error
	Partition(c Cut)
}

// Factory makes a backend for each case, and may run the case in a bubble.
type Factory struct {
	Backend func(t testing.TB) Backend
	Within  func(t *testing.T, run func(t *testing.T)) // nil: run directly
	Uncut   bool                                       // there is no connection that could be cut: leave those cases out
}

// TTL is that of the suite's sessions: the shortest that can be asked for.
const TTL = lease.MinTTL

// Run runs the conformance suite, which every implementation passes. It waits for events, never for durations; over a
// real etcd some cases last as long as an etcd lease.
func Run(t *testing.T, f Factory) {
	for _, group := range [...][]testCase{claimCases, sessionCases, livingCases, lossCases, guardCases} {
		for _, c := range group {
			if c.cuts && f.Uncut {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				run := func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					c.run(&suite{T: t, Backend: f.Backend(t), ctx: ctx})
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
	run  func(x *suite)
	cuts bool // it cuts the connection
}

// suite is one case being run. Its helpers end the test on errors.
type suite struct {
	*testing.T
	Backend
	ctx context.Context
}

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func (x *suite) node(o Options) Node {
	x.Helper()
	return x.Node(x.T, o)
}

func (x *suite) kept(n lease.Sessions, owner string) lease.Session {
	x.Helper()
	return x.session(n, lease.Spec{TTL: TTL, Owner: owner, Kept: true})
}

func (x *suite) remote(n lease.Sessions, ttl time.Duration) lease.Session {
	x.Helper()
	return x.session(n, lease.Spec{TTL: ttl, Owner: "remote"})
}

func (x *suite) session(n lease.Sessions, spec lease.Spec) lease.Session {
	x.Helper()
	s, err := n.NewSession(x.ctx, spec)
	require.NoError(x, err)
	return s
}

func (x *suite) reserve(s lease.Session, k flight.Key, nonce flight.Nonce) lease.Lease {
	x.Helper()
	l, err := s.Reserve(x.ctx, k, nonce)
	require.NoError(x, err)
	return l
}

// claim reserves the key under a nonce of its own and claims it.
func (x *suite) claim(s lease.Session, k flight.Key) (lease.Lease, flight.Nonce) {
	x.Helper()
	nonce := NewNonce()
	l := x.reserve(s, k, nonce)
	require.NoError(x, l.Claim(x.ctx))
	return l, nonce
}

// claimed waits until the lease's key is free and claims it.
func (x *suite) claimed(l lease.Lease) {
	x.Helper()
	require.NoError(x, untilFree(x.ctx, l))
}

func untilFree(ctx context.Context, l lease.Lease) error {
	for {
		err := l.Claim(ctx)
		if !errors.Is(err, lease.ErrHeld) || ctx.Err() != nil {
			return err
		}
		pause(ctx)
	}
}

// pause lets others do something before a question is asked again.
func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// claims lists the claims by key.
func (x *suite) claims(n lease.ClaimKeys) map[flight.Key]lease.Held {
	x.Helper()
	all, err := n.Claims(x.ctx)
	require.NoError(x, err)
	byKey := make(map[flight.Key]lease.Held, len(all))
	for _, h := range all {
		byKey[h.Key] = h
	}
	require.Len(x, byKey, len(all))
	return byKey
}

// isHeld checks whose claim a key has.
func (x *suite) isHeld(n lease.ClaimKeys, k flight.Key, l lease.Lease, nonce flight.Nonce) lease.Held {
	x.Helper()
	h, ok := x.claims(n)[k]
	require.True(x, ok, "%s is not claimed", k)
	require.Equal(x, lease.Held{Key: k, Session: l.Session().ID, Nonce: nonce, ModRevision: h.ModRevision}, h)
	require.Positive(x, h.ModRevision)
	return h
}

// becomesFree waits until no claim of the key is listed.
func (x *suite) becomesFree(n lease.ClaimKeys, k flight.Key) {
	x.Helper()
	for {
		if _, ok := x.claims(n)[k]; !ok {
			return
		}
		pause(x.ctx)
	}
}

// refused checks that a claim is not made because of that one.
func (x *suite) refused(l lease.Lease, by lease.Held) {
	x.Helper()
	var held *lease.HeldError
	err := l.Claim(x.ctx)
	require.ErrorIs(x, err, lease.ErrHeld)
	require.ErrorAs(x, err, &held)
	require.Equal(x, lease.HeldError{Key: by.Key, Session: by.Session, Nonce: by.Nonce}, *held)
}

// ends waits for the end of trust in the lease and checks its cause.
func (x *suite) ends(l lease.Lease, cause error) {
	x.Helper()
	select {
	case <-l.Context().Done():
	case <-x.ctx.Done():
		x.Fatal("trust in the lease does not end")
	}
	require.ErrorIs(x, context.Cause(l.Context()), cause)
	require.LessOrEqual(x, l.Trust(), time.Duration(0))
}

// living asks for all sessions, or for some.
func (x *suite) living(n lease.Liveness, ids ...flight.SessionID) lease.Living {
	x.Helper()
	living, err := n.Living(x.ctx, ids...)
	require.NoError(x, err)
	return living
}

// gone waits until the session's marker is gone.
func (x *suite) gone(n lease.Liveness, id flight.SessionID) {
	x.Helper()
	for {
		if _, ok := x.living(n, id).Sessions[id]; !ok {
			return
		}
		pause(x.ctx)
	}
}
