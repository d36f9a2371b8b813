package leasetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var sessionCases = []testCase{
	{name: "SpecsThatAreNotPossible", run: func(x *suite) {
		n := x.node(Options{})
		for _, spec := range []lease.Spec{
			{TTL: time.Second}, {TTL: -1}, {TTL: 2500 * time.Millisecond}, {TTL: time.Hour},
			{Owner: strings.Repeat("x", lease.MaxOwner+1)}, {AutoRenew: true, OneShot: true},
		} {
			_, err := n.NewSession(x.ctx, spec)
			var invalid *flight.InvalidError
			require.ErrorAs(x, err, &invalid, "%+v", spec)
		}
	}},
	{name: "CloseEndsEverything", run: func(x *suite) {
		n := x.node(Options{})
		s := x.localSession(n, "a:1")
		first, _ := x.claim(s, key("1"))
		second, _ := x.claim(s, key("2"))
		second.Release()
		id := first.Session().ID
		require.NoError(x, s.Close(x.ctx))
		x.requireTrustEnds(first, lease.ErrClosed)
		require.NotContains(x, x.listLiving(n).Sessions, id)
		require.Empty(x, x.listClaims(n))
		_, err := s.Reserve(x.ctx, key("1"), NewNonce())
		require.ErrorIs(x, err, lease.ErrClosed)
		_, err = s.Renew(x.ctx)
		require.ErrorIs(x, err, lease.ErrClosed)
		require.NoError(x, s.Close(x.ctx))
		first.Release()
	}},
	{name: "AClosedServiceRefuses", run: func(x *suite) {
		n, other := x.node(Options{}), x.node(Options{})
		s := x.localSession(n, "a:1")
		l, _ := x.claim(s, key("1"))
		released, _ := x.claim(s, key("2"))
		released.Release()
		require.NoError(x, n.Close(x.ctx))
		require.NoError(x, n.Close(x.ctx))
		x.requireTrustEnds(l, lease.ErrClosed)
		for _, spec := range []lease.Spec{{TTL: x.ttl}, {TTL: x.ttl, AutoRenew: true}, {TTL: 6 * time.Second, OneShot: true}} {
			_, err := n.NewSession(x.ctx, spec)
			require.ErrorIs(x, err, lease.ErrClosed)
		}
		require.NotContains(x, x.listLiving(other).Sessions, l.Session().ID)
		require.Empty(x, x.listClaims(other))
		n.ReleaseClaim(key("1"), l.Session().ID, NewNonce())
		require.ErrorIs(x, n.RemoveClaims(x.ctx, []lease.ListedClaim{{Key: key("1")}}), lease.ErrClosed)
	}},
	{name: "RenewGivesTheWholeWindow", run: func(x *suite) {
		for _, s := range []lease.Session{x.localSession(x.node(Options{}), "a:1"), x.remoteSession(x.node(Options{}), x.ttl)} {
			require.Equal(x, x.ttl, s.TTL())
			trust, err := s.Renew(x.ctx)
			require.NoError(x, err)
			require.Equal(x, x.ttl-lease.Margin(x.ttl), trust, "counted from before the request was sent")
			require.LessOrEqual(x, s.Trust(), trust)
			require.Positive(x, s.Trust())
		}
	}},
	{name: "ARemoteSessionIsKnownEverywhere", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		s := x.remoteSession(a, 6*time.Second)
		x.claim(s, key("1"))
		session, err := b.Session(x.ctx, s.Ref().ID)
		require.NoError(x, err)
		require.Equal(x, s.Ref(), session.Ref())
		require.Equal(x, s.TTL(), session.TTL())
		_, err = session.Renew(x.ctx)
		require.NoError(x, err)
		second, _ := x.claim(session, key("2"))
		require.Equal(x, s.Ref(), second.Session())
		require.Positive(x, second.Trust())
		again, err := b.Session(x.ctx, s.Ref().ID)
		require.NoError(x, err)
		require.Same(x, session, again, "cached while it is trusted")
		for _, id := range []flight.SessionID{"ses_unknown", ""} {
			_, err = a.Session(x.ctx, id)
			require.ErrorIs(x, err, lease.ErrLost)
		}
	}},
	{name: "ARemoteSessionOutlivesItsNode", run: func(x *suite) {
		a := x.node(Options{Node: "n1"})
		s := x.remoteSession(a, 6*time.Second)
		l, nonce := x.claim(s, key("1"))
		require.NoError(x, a.Close(x.ctx))
		restarted := x.node(Options{Node: "n1"})
		session, err := restarted.Session(x.ctx, l.Session().ID)
		require.NoError(x, err)
		require.Equal(x, l.Session(), session.Ref())
		x.requireClaim(restarted, key("1"), l, nonce)
	}},
	{name: "AKeptSessionIsNobodyElses", run: func(x *suite) {
		s := x.localSession(x.node(Options{}), "a:1")
		_, err := x.node(Options{}).Session(x.ctx, s.Ref().ID)
		require.ErrorIs(x, err, lease.ErrLost)
	}},
	{name: "EndSessionAtAnotherProcess", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		kept, remote := x.localSession(a, "a:1"), x.remoteSession(a, 6*time.Second)
		for i, s := range []lease.Session{kept, remote} {
			l, _ := x.claim(s, key(fmt.Sprint(i)))
			id := l.Session().ID
			require.NoError(x, b.EndSession(x.ctx, id))
			require.NotContains(x, x.listLiving(b, id).Sessions, id)
			require.Empty(x, x.listClaims(b), "its claims end with it")
			require.NoError(x, b.EndSession(x.ctx, id), "it has ended")
			_, err := b.Session(x.ctx, id)
			require.ErrorIs(x, err, lease.ErrLost)
			if i == 0 {
				x.requireTrustEnds(l, lease.ErrLost)
				require.True(x, a.InUse(id), "an effect may be running")
			}
			l.Release()
		}
		_, err := remote.Renew(x.ctx)
		require.ErrorIs(x, err, lease.ErrLost)
		require.NoError(x, b.EndSession(x.ctx, "ses_unknown"))
	}},
	{name: "EndSessionAtItsOwnProcess", run: func(x *suite) {
		n := x.node(Options{})
		remote, kept := x.remoteSession(n, 6*time.Second), x.localSession(n, "a:1")
		l, _ := x.claim(remote, key("1"))
		require.NoError(x, n.EndSession(x.ctx, l.Session().ID))
		x.requireTrustEnds(l, lease.ErrClosed)
		m, _ := x.claim(kept, key("2"))
		require.NoError(x, n.EndSession(x.ctx, m.Session().ID))
		x.requireTrustEnds(m, lease.ErrLost)
		living := x.listLiving(n).Sessions
		require.NotContains(x, living, l.Session().ID)
		require.NotContains(x, living, m.Session().ID)
		next, _ := x.claim(kept, key("2"))
		require.NotEqual(x, m.Session().ID, next.Session().ID, "a local session continues under another id")
	}},
	{name: "OneShotSessionsAreMarkedBeforeTheyAreGivenOut", run: func(x *suite) {
		n := x.node(Options{})
		seen := map[flight.SessionID]bool{}
		for i := range 20 {
			s := x.newSession(n, lease.Spec{TTL: 6 * time.Second, OneShot: true})
			ref := s.Ref()
			require.True(x, ref.OneShot)
			require.False(x, seen[ref.ID], "session %s was returned twice", ref.ID)
			seen[ref.ID] = true
			require.True(x, x.MarkedOneShot(x.T, ref.ID))
			living := x.listLiving(n, ref.ID)
			require.Contains(x, living.Sessions, ref.ID)
			require.GreaterOrEqual(x, living.Revision, ref.Revision)
			l, nonce := x.claim(s, key(fmt.Sprint(i)))
			require.Equal(x, ref, l.Session())
			require.Positive(x, l.Trust())
			x.requireClaim(n, key(fmt.Sprint(i)), l, nonce)
			session, err := x.node(Options{}).Session(x.ctx, ref.ID)
			require.NoError(x, err)
			require.Equal(x, ref, session.Ref(), "another node reads it from the session key")
			require.NoError(x, n.EndSession(x.ctx, ref.ID))
		}
		s := x.remoteSession(n, 6*time.Second)
		require.False(x, s.Ref().OneShot)
		require.False(x, x.MarkedOneShot(x.T, s.Ref().ID))
	}},
	{name: "InUse", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		kept, remote := x.localSession(a, "a:1"), x.remoteSession(a, x.ttl)
		id := kept.Ref().ID
		require.False(x, a.InUse(id))
		l, m := x.reserve(kept, key("1"), NewNonce()), x.reserve(kept, key("2"), NewNonce())
		require.True(x, a.InUse(id))
		require.False(x, b.InUse(id), "local to another process")
		x.reserve(remote, key("3"), NewNonce())
		require.False(x, a.InUse(remote.Ref().ID), "a remote session")
		l.Release()
		l.Release()
		require.True(x, a.InUse(id))
		m.Release()
		require.False(x, a.InUse(id))
	}},
}
