package leasetest

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Backend is an implementation under test: nodes on one etcd and one ledger, with fault injection.
type Backend interface {
	// Node starts a service that is closed when the test ends. It uses Node, Deployment, Ledger and Events of the
	// options; without a Ledger it uses the backend's ledger.
	Node(t testing.TB, o Options) Node
	// Ledger returns the ledger of the nodes.
	Ledger() *Ledger
	// Expire ends the etcd lease of a session.
	Expire(t testing.TB, id flight.SessionID)
	// DropGuardKey deletes the guard key.
	DropGuardKey(t testing.TB)
	// SetCounter writes the counter of the guard key; 0 deletes it.
	SetCounter(t testing.TB, n uint64)
	// MarkedOneShot reports whether the session key is in etcd and is that of a one-shot session.
	MarkedOneShot(t testing.TB, id flight.SessionID) bool
}

// Node is one service with a connection of its own.
type Node interface {
	lease.Service
	Ready(ctx context.Context) error
	RaiseEpoch(ctx context.Context, from uint32, inLedger func(context.Context) error) error
	Partition(c Cut)
}

// Factory creates a backend for each case, and may run the case in a bubble.
type Factory struct {
	Backend      func(t testing.TB) Backend
	Within       func(t *testing.T, run func(t *testing.T)) // nil: run directly
	NoPartitions bool                                       // the backend has no connection: skip the cases that need a partition
	Parallel     bool                                       // the cases run beside each other: in real time they mostly wait
	TTL          time.Duration                              // of the sessions; 0: lease.MinTTL. In real time it has to outlast a stall
}

// Run runs the conformance suite. It waits for events, never for durations; with a real etcd some cases last as long as
// an etcd lease.
func Run(t *testing.T, f Factory) {
	for _, group := range [...][]testCase{claimCases, sessionCases, livingCases, lossCases, guardCases} {
		for _, c := range group {
			if c.needsPartition && f.NoPartitions {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if f.Parallel {
					t.Parallel()
				}
				run := func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					c.run(&suite{T: t, Backend: f.Backend(t), ctx: ctx, ttl: cmp.Or(f.TTL, lease.MinTTL), virtual: f.Within != nil})
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
	name           string
	run            func(x *suite)
	needsPartition bool // calls Node.Partition
}

// suite is one running case. Its helpers fail the test on errors.
type suite struct {
	*testing.T
	Backend
	ctx     context.Context
	ttl     time.Duration // of most sessions
	virtual bool          // time passes only while everybody waits
}

// requireSince requires that less than d has passed. In real time it requires nothing, because a busy machine takes its time.
func (su *suite) requireSince(began time.Time, d time.Duration, why string) {
	su.Helper()
	if su.virtual {
		require.Less(su, time.Since(began), d, why)
	}
}

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func (su *suite) node(o Options) Node {
	su.Helper()
	return su.Node(su.T, o)
}

func (su *suite) localSession(n lease.Sessions, owner string) lease.Session {
	su.Helper()
	return su.newSession(n, lease.Spec{TTL: su.ttl, Owner: owner, AutoRenew: true})
}

func (su *suite) remoteSession(n lease.Sessions, ttl time.Duration) lease.Session {
	su.Helper()
	return su.newSession(n, lease.Spec{TTL: ttl, Owner: "remote"})
}

func (su *suite) newSession(n lease.Sessions, spec lease.Spec) lease.Session {
	su.Helper()
	s, err := n.NewSession(su.ctx, spec)
	require.NoError(su, err)
	return s
}

func (su *suite) reserve(s lease.Session, k flight.Key, nonce flight.Nonce) lease.Lease {
	su.Helper()
	l, err := s.Reserve(su.ctx, k, nonce)
	require.NoError(su, err)
	return l
}

// claim reserves the key with a new nonce and claims it.
func (su *suite) claim(s lease.Session, k flight.Key) (lease.Lease, flight.Nonce) {
	su.Helper()
	nonce := NewNonce()
	l := su.reserve(s, k, nonce)
	require.NoError(su, l.Claim(su.ctx))
	return l, nonce
}

// claimWhenFree waits until the lease's key is free and claims it.
func (su *suite) claimWhenFree(l lease.Lease) {
	su.Helper()
	require.NoError(su, untilFree(su.ctx, l))
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

// pause waits 5 ms before a request is repeated.
func pause(ctx context.Context) {
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// listClaims returns the claims by key.
func (su *suite) listClaims(n lease.ClaimKeys) map[flight.Key]lease.ListedClaim {
	su.Helper()
	all, err := n.Claims(su.ctx)
	require.NoError(su, err)
	byKey := make(map[flight.Key]lease.ListedClaim, len(all))
	for _, h := range all {
		byKey[h.Key] = h
	}
	require.Len(su, byKey, len(all))
	return byKey
}

// requireClaim requires that the key has the claim of the lease, and returns it.
func (su *suite) requireClaim(n lease.ClaimKeys, k flight.Key, l lease.Lease, nonce flight.Nonce) lease.ListedClaim {
	su.Helper()
	h, ok := su.listClaims(n)[k]
	require.True(su, ok, "%s is not claimed", k)
	require.Equal(su, lease.ListedClaim{Key: k, Session: l.Session().ID, Nonce: nonce, ModRevision: h.ModRevision}, h)
	require.Positive(su, h.ModRevision)
	return h
}

// waitUntilFree waits until no claim of the key is listed.
func (su *suite) waitUntilFree(n lease.ClaimKeys, k flight.Key) {
	su.Helper()
	for {
		if _, ok := su.listClaims(n)[k]; !ok {
			return
		}
		pause(su.ctx)
	}
}

// requireHeldBy requires that Claim fails because of that claim.
func (su *suite) requireHeldBy(l lease.Lease, by lease.ListedClaim) {
	su.Helper()
	var held *lease.HeldError
	err := l.Claim(su.ctx)
	require.ErrorIs(su, err, lease.ErrHeld)
	require.ErrorAs(su, err, &held)
	require.Equal(su, lease.HeldError{Key: by.Key, Session: by.Session, Nonce: by.Nonce}, *held)
}

// requireTrustEnds waits for the end of trust in the lease and requires its cause.
func (su *suite) requireTrustEnds(l lease.Lease, cause error) {
	su.Helper()
	select {
	case <-l.Context().Done():
	case <-su.ctx.Done():
		su.Fatal("trust in the lease has not ended")
	}
	require.ErrorIs(su, context.Cause(l.Context()), cause)
	require.LessOrEqual(su, l.Trust(), time.Duration(0))
}

// listLiving calls Living for the given sessions; without ids for all.
func (su *suite) listLiving(n lease.Liveness, ids ...flight.SessionID) lease.Living {
	su.Helper()
	living, err := n.Living(su.ctx, ids...)
	require.NoError(su, err)
	return living
}

// waitUntilGone waits until the session key is deleted.
func (su *suite) waitUntilGone(n lease.Liveness, id flight.SessionID) {
	su.Helper()
	for {
		if _, ok := su.listLiving(n, id).Sessions[id]; !ok {
			return
		}
		pause(su.ctx)
	}
}
