package leasetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var lossCases = []testCase{
	{name: "ARevokedLeaseIsNoticed", run: func(x *suite) {
		n, other := x.node(Options{}), x.node(Options{})
		s := x.localSession(n, "a:1")
		l, _ := x.claim(s, key("1"))
		id := l.Session().ID
		x.Expire(x.T, id)
		newer, nonce := x.claim(x.localSession(other, "b:1"), key("1"))
		x.requireTrustEnds(l, lease.ErrLost)
		require.True(x, n.InUse(id), "lost, but not released")
		second, _ := x.claim(s, key("2"))
		require.NotEqual(x, id, second.Session().ID, "the session goes on under another id")
		require.Equal(x, s.Ref(), second.Session())
		require.Greater(x, second.Session().Revision, l.Session().Revision)
		l.Release()
		require.False(x, n.InUse(id))
		second.Release()
		x.waitUntilFree(n, key("2"))
		x.requireClaim(other, key("1"), newer, nonce)
	}},
	{name: "ARemoteSessionThatNobodyRenewsEnds", run: func(x *suite) {
		n := x.node(Options{})
		s := x.remoteSession(n, x.ttl)
		l, _ := x.claim(s, key("1"))
		x.requireTrustEnds(l, lease.ErrLost)
		x.claimWhenFree(x.reserve(x.localSession(x.node(Options{}), "b:1"), key("1"), NewNonce()))
		_, err := s.Reserve(x.ctx, key("2"), NewNonce())
		require.ErrorIs(x, err, lease.ErrLost)
		_, err = n.Session(x.ctx, l.Session().ID)
		require.ErrorIs(x, err, lease.ErrLost)
		l.Release()
	}},
	{name: "LostHereAndRenewedElsewhere", run: func(x *suite) {
		n, other := x.node(Options{}), x.node(Options{})
		s := x.remoteSession(n, x.ttl)
		l, nonce := x.claim(s, key("1"))
		session, err := other.Session(x.ctx, s.Ref().ID)
		require.NoError(x, err)
		for l.Context().Err() == nil {
			_, err := session.Renew(x.ctx)
			require.NoError(x, err)
			timer := time.NewTimer(x.ttl / 10)
			select {
			case <-l.Context().Done():
			case <-timer.C:
			}
		}
		x.requireTrustEnds(l, lease.ErrLost)
		x.requireClaim(n, key("1"), l, nonce)
		again, err := n.Session(x.ctx, l.Session().ID)
		require.NoError(x, err)
		require.Equal(x, l.Session(), again.Ref(), "found by its session key")
		second, _ := x.claim(again, key("2"))
		require.Positive(x, second.Trust())
		require.LessOrEqual(x, l.Trust(), time.Duration(0), "lost trust never returns")
		l.Release()
		x.waitUntilFree(n, key("1"))
		require.NoError(x, s.Close(x.ctx), "its owner closes it through the node that lost it")
		require.NotContains(x, x.listLiving(n, l.Session().ID).Sessions, l.Session().ID)
	}},
	{name: "AKeptSessionStays", run: func(x *suite) {
		renewed := make(chan struct{}, 100)
		n := x.node(Options{Events: lease.Events{Renewed: func(flight.SessionID, time.Duration) { renewed <- struct{}{} }}})
		l, nonce := x.claim(x.localSession(n, "a:1"), key("1"))
		for range 4 { // more than a time to live
			select {
			case <-renewed:
			case <-l.Context().Done():
				x.Fatalf("lost: %v", context.Cause(l.Context()))
			}
		}
		require.Positive(x, l.Trust())
		x.requireClaim(n, key("1"), l, nonce)
	}},
	{name: "ALostSessionInUseIsRenewedUntilItsLeasesAreReleased", run: func(x *suite) {
		renewed := make(chan flight.SessionID, 100)
		n := x.node(Options{Events: lease.Events{Renewed: func(id flight.SessionID, _ time.Duration) { renewed <- id }}})
		s := x.localSession(n, "a:1")
		first, _ := x.claim(s, key("1"))
		second, nonce := x.claim(s, key("2"))
		id := first.Session().ID
		x.Ledger().RaiseEpoch() // ends trust without a change in etcd
		next, _ := x.claim(s, key("3"))
		require.NotEqual(x, id, next.Session().ID, "nothing starts under the lost session")
		x.requireTrustEnds(first, lease.ErrLost)
		for range 4 { // more than a time to live
			for got := flight.SessionID(""); got != id; {
				select {
				case got = <-renewed:
				case <-x.ctx.Done():
					x.Fatal("the lost session is not renewed")
				}
			}
		}
		first.Release()
		x.waitUntilFree(n, key("1"))
		require.Contains(x, x.listLiving(n, id).Sessions, id, "one lease is not released")
		require.True(x, n.InUse(id))
		x.requireClaim(n, key("2"), second, nonce)
		began := time.Now()
		second.Release()
		require.False(x, n.InUse(id))
		x.waitUntilGone(n, id)
		x.requireSince(began, x.ttl/2, "revoked, not expired")
		x.waitUntilFree(n, key("2"))
		require.Positive(x, next.Trust())
	}},
	{name: "Hazard13_AHolderIsCutOff", run: func(x *suite) { testPartition(x, CutRequests) }, needsPartition: true},
	{name: "Hazard15_AnswersAreLost", run: func(x *suite) { testPartition(x, CutAnswers) }, needsPartition: true},
	{name: "Hazard36_EarlierLivesAreEndedAtStart", run: func(x *suite) {
		a := x.node(Options{Node: "n1"})
		s := x.newSession(a, lease.Spec{TTL: 30 * time.Second, Owner: "a:1", AutoRenew: true})
		remote := x.remoteSession(a, 30*time.Second)
		l, _ := x.claim(s, key("1"))
		other := x.localSession(x.node(Options{Node: "n2"}), "b:1")
		a.Partition(CutRequests) // to etcd it looks like a crash
		restarted := x.node(Options{Node: "n1"})
		own := x.localSession(restarted, "a:2")
		began := time.Now()
		x.waitUntilGone(restarted, l.Session().ID)
		x.requireSince(began, 15*time.Second, "the restarted node waited for the TTL of the old session")
		living := x.listLiving(restarted).Sessions
		require.Contains(x, living, remote.Ref().ID, "remote sessions are not revoked")
		require.Contains(x, living, other.Ref().ID, "the session of another node")
		require.Contains(x, living, own.Ref().ID, "its own new session")
		x.claim(own, key("1"))
		a.Partition(CutNothing)
	}, needsPartition: true},
}

// testPartition cuts the connection of a holder. The holder's trust ends before the end of its session can be proved
// and before another node can claim the key. After the partition it continues under another session.
func testPartition(x *suite, c Cut) {
	n, other := x.node(Options{}), x.node(Options{})
	s := x.localSession(n, "a:1")
	l, _ := x.claim(s, key("1"))
	id := l.Session().ID
	successor := x.reserve(x.localSession(other, "b:1"), key("1"), NewNonce())
	trusted := make(chan time.Duration, 1)
	n.Partition(c)
	go func() {
		err := untilFree(x.ctx, successor)
		trusted <- l.Trust()
		assert.NoError(x, err)
	}()
	x.requireTrustEnds(l, lease.ErrLost)
	if c == CutAnswers { // its renewals reach etcd and would keep the session alive for the lease
		l.Release()
	}
	require.LessOrEqual(x, <-trusted, time.Duration(0), "the key was claimed while its holder trusted the session")
	require.NotContains(x, x.listLiving(other).Sessions, id)
	ctx, cancel := context.WithTimeout(x.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := s.Reserve(ctx, key("2"), NewNonce())
	require.ErrorIs(x, err, lease.ErrUnavailable)
	require.Equal(x, c == CutRequests, n.InUse(id))
	l.Release()
	n.Partition(CutNothing)
	for {
		again, err := s.Reserve(x.ctx, key("2"), NewNonce())
		if err != nil {
			require.ErrorIs(x, err, lease.ErrUnavailable)
			pause(x.ctx)
			continue // the connection is not restored yet
		}
		require.NoError(x, again.Claim(x.ctx))
		require.NotEqual(x, id, again.Session().ID)
		return
	}
}
