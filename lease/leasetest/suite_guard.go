package leasetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var guardCases = []testCase{
	{name: "TheCounterRises", run: func(x *suite) {
		nodes := []Node{x.node(Options{}), x.node(Options{})}
		var mu sync.Mutex
		seen := map[uint64]bool{}
		var all sync.WaitGroup
		for i, n := range nodes {
			all.Go(func() {
				for range 5 {
					epoch, counter, err := n.RaiseGuard(x.ctx)
					if err != nil { // concurrent calls may fail; in production only the leader calls
						assert.ErrorIs(x, err, lease.ErrUnavailable)
						continue
					}
					x.Ledger().Record(counter)
					mu.Lock()
					assert.EqualValues(x, 1, epoch)
					assert.False(x, seen[counter], "node %d: counter %d twice", i, counter)
					seen[counter] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.NotEmpty(x, seen)
		known := x.Ledger().Header().GuardCounter
		_, counter, err := nodes[0].RaiseGuard(x.ctx)
		require.NoError(x, err)
		require.Greater(x, counter, known)
	}},
	{name: "Hazard20_TheCounterWentBack", run: func(x *suite) { testRegressed(x, func() { x.SetCounter(x.T, 2) }) }},
	{name: "Hazard20_TheCounterIsLost", run: func(x *suite) { testRegressed(x, func() { x.SetCounter(x.T, 0) }) }},
	{name: "Hazard20_TheGuardKeyIsLost", run: func(x *suite) { testRegressed(x, func() { x.DropGuardKey(x.T) }) }},
	{name: "Hazard20_TheCounterIsNotRaisedFromAnOlderOne", run: func(x *suite) {
		n := x.node(Options{})
		x.localSession(n, "a:1")
		x.Ledger().Record(3)
		_, _, err := n.RaiseGuard(x.ctx)
		require.ErrorIs(x, err, lease.ErrRegressed)
		x.Ledger().RaiseEpoch()
		_, counter, err := n.RaiseGuard(x.ctx)
		require.NoError(x, err)
		require.EqualValues(x, 1, counter)
	}},
	{name: "Hazard20_AnIdleNodeNoticesToo", run: func(x *suite) {
		n := x.node(Options{})
		l, _ := x.claim(x.localSession(n, "a:1"), key("1"))
		x.Ledger().Record(3) // etcd is older than the record
		x.requireTrustEnds(l, lease.ErrRegressed)
	}},
	{name: "Hazard21_SessionsOfAnOlderEpochAreVoid", run: func(x *suite) {
		n := x.node(Options{})
		s, remote := x.localSession(n, "a:1"), x.remoteSession(n, time.Minute)
		l, _ := x.claim(s, key("1"))
		m, nonce := x.claim(remote, key("2"))
		x.Ledger().RaiseEpoch()
		next, _ := x.claim(s, key("3"))
		require.EqualValues(x, 2, next.Session().Epoch)
		require.EqualValues(x, 2, x.listLiving(n).Epoch)
		x.requireTrustEnds(l, lease.ErrLost)
		x.requireTrustEnds(m, lease.ErrLost)
		_, err := n.Session(x.ctx, m.Session().ID)
		require.ErrorIs(x, err, lease.ErrLost)
		_, err = remote.Reserve(x.ctx, key("4"), NewNonce())
		require.ErrorIs(x, err, lease.ErrLost)
		held := x.requireClaim(n, key("2"), m, nonce)
		require.NoError(x, n.RemoveClaims(x.ctx, []lease.ListedClaim{held}), "claims of an older epoch can be removed")
		x.claim(s, key("2"))
		l.Release()
	}},
	{name: "ANodeBehindTheEpochWaits", run: func(x *suite) {
		behind := NewLedger()
		slow := x.node(Options{Ledger: behind})
		s := x.localSession(slow, "slow")
		id := s.Ref().ID
		x.Ledger().RaiseEpoch()
		x.localSession(x.node(Options{}), "a:1")
		_, err := slow.Living(x.ctx, id)
		require.ErrorIs(x, err, lease.ErrUnavailable, "the guard key is of another epoch")
		_, _, err = slow.RaiseGuard(x.ctx)
		require.ErrorIs(x, err, lease.ErrUnavailable)
		_, err = slow.NewSession(x.ctx, lease.Spec{TTL: x.ttl})
		require.ErrorIs(x, err, lease.ErrUnavailable)
		behind.RaiseEpoch()
		x.listLiving(slow, id)
		x.claim(s, key("1"))
	}},
	{name: "Hazard66_ARaiseEndsTheSessionsBeforeTheLedgerKnows", run: func(x *suite) {
		n := x.node(Options{})
		l, _ := x.claim(x.localSession(n, "a:1"), key("1"))
		remote := x.remoteSession(n, time.Minute)
		died := errors.New("the process dies")
		err := n.RaiseEpoch(x.ctx, 1, func(context.Context) error { return died })
		require.ErrorIs(x, err, died)
		_, err = remote.Renew(x.ctx)
		require.ErrorIs(x, err, lease.ErrLost, "an owner cannot go on renewing a session of the older epoch")
		x.requireTrustEnds(l, lease.ErrLost)

		next := x.node(Options{}) // of the process that was started again, or of the next leader
		var ahead *lease.AheadError
		require.ErrorAs(x, next.Ready(x.ctx), &ahead)
		require.Equal(x, lease.AheadError{Ledger: 1, Etcd: 2}, *ahead)
		_, err = next.NewSession(x.ctx, lease.Spec{TTL: x.ttl})
		require.ErrorIs(x, err, lease.ErrUnavailable)
		_, err = next.Living(x.ctx, remote.Ref().ID)
		require.ErrorIs(x, err, lease.ErrUnavailable, "nothing is declared ended")
		require.NoError(x, next.RaiseEpoch(x.ctx, 1, func(context.Context) error {
			x.Ledger().RaiseEpoch()
			return nil
		}))
		require.NoError(x, next.Ready(x.ctx))
		s, _ := x.claim(x.localSession(next, "a:1"), key("1"))
		require.EqualValues(x, 2, s.Session().Epoch)
		require.ErrorAs(x, next.RaiseEpoch(x.ctx, 0, nil), &ahead, "a ledger that is behind raises nothing")
	}},
	{name: "Hazard37_TwoDeploymentsOnOnePrefix", run: func(x *suite) {
		own := x.node(Options{})
		id := x.localSession(own, "a:1").Ref().ID
		stranger := x.node(Options{Deployment: "another", Ledger: NewLedger()})
		_, err := stranger.Living(x.ctx, id)
		require.ErrorIs(x, err, lease.ErrForeign)
		_, _, err = stranger.RaiseGuard(x.ctx)
		require.ErrorIs(x, err, lease.ErrForeign)
		_, err = stranger.NewSession(x.ctx, lease.Spec{TTL: x.ttl, AutoRenew: true})
		require.ErrorIs(x, err, lease.ErrForeign)
		_, err = stranger.Session(x.ctx, id)
		require.ErrorIs(x, err, lease.ErrForeign)
		_, err = stranger.Claims(x.ctx)
		require.ErrorIs(x, err, lease.ErrForeign)
		require.ErrorIs(x, stranger.Ready(x.ctx), lease.ErrForeign)
		require.Contains(x, x.listLiving(own).Sessions, id)
	}},
}

// testRegressed tests an etcd whose guard key or counter is older than the ledger's record, although its revision has
// increased, as after a restore with a bumped revision.
func testRegressed(x *suite, lose func()) {
	n := x.node(Options{})
	for range 3 {
		_, counter, err := n.RaiseGuard(x.ctx)
		require.NoError(x, err)
		x.Ledger().Record(counter)
	}
	s := x.localSession(n, "a:1")
	l, _ := x.claim(s, key("1"))
	x.listLiving(n)
	lose()
	_, err := n.Living(x.ctx, l.Session().ID)
	require.ErrorIs(x, err, lease.ErrRegressed)
	var figures *lease.RegressedError
	require.ErrorAs(x, err, &figures)
	require.EqualValues(x, 3, figures.Recorded)
	require.EqualValues(x, 1, figures.Epoch)
	x.requireTrustEnds(l, lease.ErrRegressed)
	checkRefused := func(n Node) {
		_, err = n.Living(x.ctx, flight.SessionID("ses_unknown"))
		require.ErrorIs(x, err, lease.ErrRegressed)
		_, _, err = n.RaiseGuard(x.ctx)
		require.ErrorIs(x, err, lease.ErrRegressed)
		_, err = n.NewSession(x.ctx, lease.Spec{TTL: x.ttl})
		require.ErrorIs(x, err, lease.ErrRegressed)
		_, err = n.Claims(x.ctx)
		require.ErrorIs(x, err, lease.ErrRegressed)
		require.ErrorIs(x, n.Ready(x.ctx), lease.ErrRegressed)
	}
	checkRefused(n)
	checkRefused(x.node(Options{}))
	_, err = s.Reserve(x.ctx, key("2"), NewNonce())
	require.ErrorIs(x, err, lease.ErrRegressed)
	require.ErrorIs(x, l.Claim(x.ctx), lease.ErrRegressed)

	x.Ledger().RaiseEpoch()
	next := x.reserve(s, key("1"), NewNonce())
	require.EqualValues(x, 2, next.Session().Epoch)
	require.NoError(x, n.Ready(x.ctx))
	epoch, counter, err := n.RaiseGuard(x.ctx)
	require.NoError(x, err)
	require.EqualValues(x, 2, epoch)
	x.Ledger().Record(counter)
	require.EqualValues(x, 2, x.listLiving(n).Epoch)
	l.Release()
}
