package leasetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/lease"
)

var claimCases = []testCase{
	{name: "ClaimNamesSessionAndNonce", run: func(x *suite) {
		n := x.node(Options{})
		a, b := x.localSession(n, "a:1"), x.localSession(x.node(Options{}), "b:1")
		nonce := NewNonce()
		l := x.reserve(a, key("1"), nonce)
		require.Empty(x, x.listClaims(n), "a reservation writes nothing")
		require.NoError(x, l.Claim(x.ctx))
		require.Equal(x, a.Ref(), l.Session(), "the claim and the open name one session")
		require.Positive(x, l.Session().Revision)
		require.EqualValues(x, 1, l.Session().Epoch)
		held := x.requireClaim(n, key("1"), l, nonce)
		require.Greater(x, held.ModRevision, l.Session().Revision)
		require.Positive(x, l.Trust())
		require.LessOrEqual(x, l.Trust(), x.ttl-lease.Margin(x.ttl))
		for _, s := range []lease.Session{a, b} {
			x.requireHeldBy(x.reserve(s, key("1"), NewNonce()), held)
		}
	}},
	{name: "ReleaseFreesTheKey", run: func(x *suite) {
		n := x.node(Options{})
		l, _ := x.claim(x.localSession(n, "a:1"), key("1"))
		l.Release()
		l.Release()
		require.NoError(x, l.Context().Err(), "the session goes on")
		require.Positive(x, l.Trust())
		require.ErrorIs(x, l.Claim(x.ctx), lease.ErrReleased)
		require.ErrorIs(x, l.Replace(x.ctx), lease.ErrReleased)
		x.claimWhenFree(x.reserve(x.localSession(x.node(Options{}), "b:1"), key("1"), NewNonce()))
	}},
	{name: "ClaimAgainIsOurs", run: func(x *suite) {
		n := x.node(Options{})
		l, nonce := x.claim(x.localSession(n, "a:1"), key("1"))
		first := x.requireClaim(n, key("1"), l, nonce)
		require.NoError(x, l.Claim(x.ctx))
		require.Equal(x, first, x.requireClaim(n, key("1"), l, nonce), "it was not written again")
	}},
	{name: "OneKeyInOrderWithinAProcess", run: func(x *suite) {
		s := x.localSession(x.node(Options{}), "a:1")
		for range 20 { // a claim does not overtake the release before it
			l, _ := x.claim(s, key("1"))
			l.Release()
		}
	}},
	{name: "ReplaceTakesAForeignClaim", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		old, oldNonce := x.claim(x.localSession(a, "a:1"), key("1"))
		was := x.requireClaim(a, key("1"), old, oldNonce)
		nonce := NewNonce()
		l := x.reserve(x.localSession(b, "b:1"), key("1"), nonce)
		x.requireHeldBy(l, was)
		require.NoError(x, l.Replace(x.ctx))
		require.NoError(x, l.Replace(x.ctx))
		now := x.requireClaim(a, key("1"), l, nonce)
		require.NoError(x, l.Claim(x.ctx))
		x.requireHeldBy(old, now)
	}},
	{name: "AReleaseSparesTheClaimThatReplacedIt", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		old, oldNonce := x.claim(x.localSession(a, "a:1"), key("1"))
		was := x.requireClaim(a, key("1"), old, oldNonce)
		nonce := NewNonce()
		l := x.reserve(x.localSession(b, "b:1"), key("1"), nonce)
		require.NoError(x, l.Replace(x.ctx))
		old.Release()
		b.ReleaseClaim(key("1"), old.Session().ID, oldNonce)
		b.ReleaseClaim(key("1"), l.Session().ID, oldNonce)
		require.NoError(x, b.RemoveClaims(x.ctx, []lease.ListedClaim{was}))
		require.NoError(x, a.Close(x.ctx)) // waits for the releases
		probe, _ := x.claim(x.localSession(b, "b:2"), key("2"))
		probe.Release()
		x.waitUntilFree(b, key("2")) // queued after the releases by name
		x.requireClaim(b, key("1"), l, nonce)
	}},
	{name: "ReplaceUnderASessionThatIsGone", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		old, oldNonce := x.claim(x.localSession(b, "b:1"), key("1"))
		for _, s := range []lease.Session{x.localSession(a, "a:1"), x.remoteSession(a, time.Minute)} {
			l := x.reserve(s, key("1"), NewNonce())
			x.Expire(x.T, l.Session().ID)
			began := time.Now()
			require.ErrorIs(x, l.Replace(x.ctx), lease.ErrLost)
			x.requireSince(began, 20*time.Second, "the answer of etcd ends trust early")
			require.LessOrEqual(x, l.Trust(), time.Duration(0), "trust ends at once")
			x.requireTrustEnds(l, lease.ErrLost)
			require.ErrorIs(x, l.Claim(x.ctx), lease.ErrLost)
			l.Release()
		}
		x.requireClaim(b, key("1"), old, oldNonce)
	}},
	{name: "ClaimUnderASessionThatIsGoneFailsAlone", run: func(x *suite) {
		n := x.node(Options{})
		dead, alive := x.remoteSession(n, time.Minute), x.localSession(n, "a:1")
		l := x.reserve(dead, key("1"), NewNonce())
		x.Expire(x.T, dead.Ref().ID)
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- l.Claim(x.ctx) }()
		x.claim(alive, key("2"))
		require.ErrorIs(x, <-done, lease.ErrLost)
		x.requireSince(began, 20*time.Second, "the answer of etcd ends trust early")
		x.claim(alive, key("1"))
		_, err := dead.Renew(x.ctx)
		require.ErrorIs(x, err, lease.ErrLost)
		_, err = dead.Reserve(x.ctx, key("3"), NewNonce())
		require.ErrorIs(x, err, lease.ErrLost)
	}},
	{name: "ReleaseByName", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		l, nonce := x.claim(x.remoteSession(a, time.Minute), key("1"))
		b.ReleaseClaim(key("1"), l.Session().ID, NewNonce())
		b.ReleaseClaim(key("2"), l.Session().ID, nonce)
		x.requireClaim(b, key("1"), l, nonce)
		b.ReleaseClaim(key("1"), l.Session().ID, nonce)
		x.waitUntilFree(b, key("1"))
		l.Release()
	}},
	{name: "ClaimsAreListedAndRemoved", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		s := x.localSession(a, "a:1")
		var leases []lease.Lease
		for i := range 5 {
			l, nonce := x.claim(s, key(fmt.Sprint(i)))
			x.requireClaim(b, key(fmt.Sprint(i)), l, nonce)
			leases = append(leases, l)
		}
		all, err := b.Claims(x.ctx)
		require.NoError(x, err)
		require.Len(x, all, 5)
		for i := range all {
			if all[i].Key == key("4") {
				all[i].ModRevision-- // as if the key had been written since
			}
		}
		require.NoError(x, b.RemoveClaims(x.ctx, nil))
		require.NoError(x, b.RemoveClaims(x.ctx, append(all, all[0])))
		left := x.listClaims(b)
		require.Len(x, left, 1)
		require.Contains(x, left, key("4"))
		for _, l := range leases {
			require.Positive(x, l.Trust(), "trust does not depend on the claim")
			l.Release()
		}
	}},
	{name: "BatchedClaimsFailAlone", run: func(x *suite) {
		n := x.node(Options{})
		s, other := x.localSession(n, "a:1"), x.localSession(x.node(Options{}), "b:1")
		taken, nonce := x.claim(other, key("taken"))
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				k := key(fmt.Sprint(i))
				if i%10 == 0 {
					k = key("taken")
				}
				l, err := s.Reserve(x.ctx, k, NewNonce())
				if !assert.NoError(x, err) {
					return
				}
				if err = l.Claim(x.ctx); i%10 == 0 {
					assert.ErrorIs(x, err, lease.ErrHeld)
				} else {
					assert.NoError(x, err)
				}
				if i%2 == 0 {
					l.Release()
				}
			})
		}
		all.Wait()
		x.requireClaim(n, key("taken"), taken, nonce)
		require.GreaterOrEqual(x, len(x.listClaims(n)), 51)
	}},
	{name: "Hazard11_ACrowdClaimsOneAtATime", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		claimConcurrently(x, x.localSession(a, "a:1"), x.localSession(a, "a:2"), x.localSession(b, "b:1"))
	}},
	{name: "ACallerThatLeavesHasItsClaimDeleted", run: func(x *suite) {
		n := x.node(Options{})
		s := x.localSession(n, "a:1")
		for i := range 20 {
			k := key(fmt.Sprint(i))
			l := x.reserve(s, k, NewNonce())
			ctx, cancel := context.WithCancel(x.ctx)
			done := make(chan error, 1)
			go func() { done <- l.Claim(ctx) }()
			cancel()
			if err := <-done; err != nil {
				require.ErrorIs(x, err, lease.ErrUnavailable)
				require.ErrorIs(x, err, context.Canceled)
			}
			l.Release()
			x.claim(s, k)
		}
	}},
}

// claimConcurrently lets many leases of several sessions claim two keys and requires that a key has one claim at a
// time.
func claimConcurrently(x *suite, sessions ...lease.Session) {
	const callers, rounds = 6, 3
	var holders [2]atomic.Int32
	var all sync.WaitGroup
	for i := range callers * len(sessions) {
		all.Go(func() {
			for range rounds {
				k := i % len(holders)
				l, err := sessions[i%len(sessions)].Reserve(x.ctx, key(fmt.Sprint(k)), NewNonce())
				if !assert.NoError(x, err) || !assert.NoError(x, untilFree(x.ctx, l)) {
					return
				}
				assert.EqualValues(x, 1, holders[k].Add(1), "claims of key %d", k)
				holders[k].Add(-1)
				l.Release()
			}
		})
	}
	all.Wait()
}
