package leasetest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var livingCases = []testCase{
	{name: "LivingIsAProof", run: func(x *suite) {
		a, b := x.node(Options{}), x.node(Options{})
		kept, remote := x.localSession(a, "a:1").Ref(), x.remoteSession(b, 6*time.Second).Ref()
		ended := x.remoteSession(a, 6*time.Second)
		require.NoError(x, ended.Close(x.ctx))
		all := x.listLiving(b)
		require.Equal(x, map[flight.SessionID]struct{}{kept.ID: {}, remote.ID: {}}, all.Sessions)
		require.EqualValues(x, 1, all.Epoch)
		for _, s := range []flight.Session{kept, remote, ended.Ref()} {
			require.GreaterOrEqual(x, all.Revision, s.Revision)
			require.Equal(x, all.Epoch, s.Epoch)
		}
		some := x.listLiving(b, kept.ID, ended.Ref().ID, "ses_unknown")
		require.Equal(x, map[flight.SessionID]struct{}{kept.ID: {}}, some.Sessions)
		require.GreaterOrEqual(x, some.Revision, all.Revision)
	}},
	{name: "LivingMissesNoSessionMadeBefore", run: func(x *suite) {
		nodes := []Node{x.node(Options{}), x.node(Options{})}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 5 {
					s, err := nodes[i%2].NewSession(x.ctx, lease.Spec{TTL: 6 * time.Second})
					if !assert.NoError(x, err) {
						return
					}
					living, err := nodes[(i+1)%2].Living(x.ctx)
					assert.NoError(x, err)
					assert.Contains(x, living.Sessions, s.Ref().ID)
					assert.GreaterOrEqual(x, living.Revision, s.Ref().Revision)
				}
			})
		}
		all.Wait()
	}},
	{name: "LivingOfManySessions", run: func(x *suite) {
		n := x.node(Options{})
		ids := make([]flight.SessionID, 0, 300)
		for range 3 {
			ids = append(ids, x.remoteSession(n, 6*time.Second).Ref().ID)
		}
		for len(ids) < cap(ids) {
			ids = append(ids, "ses_unknown")
		}
		living := x.listLiving(n, ids...)
		for _, id := range ids[:3] {
			require.Contains(x, living.Sessions, id)
		}
		require.NotContains(x, living.Sessions, flight.SessionID("ses_unknown"))
	}},
	{name: "WatchHintsAtEndedSessions", run: func(x *suite) {
		n := x.node(Options{})
		hints := newHints(x, n)
		dying, closing, living := x.remoteSession(n, 6*time.Second), x.remoteSession(n, 6*time.Second), x.localSession(n, "a:1")
		x.claim(living, key("1"))
		x.Expire(x.T, dying.Ref().ID)
		hints.next(x, dying.Ref().ID)
		require.NoError(x, closing.Close(x.ctx))
		hints.next(x, closing.Ref().ID)
		require.NoError(x, n.EndSession(x.ctx, living.Ref().ID))
		hints.next(x, living.Ref().ID)
	}},
}

// hints collects the sessions reported by Watch. newHints ends warm-up sessions until Watch reports one, so that the
// watch has started before the test ends a session.
type hints struct {
	ended  chan flight.SessionID
	warmup map[flight.SessionID]bool
}

func newHints(x *suite, n Node) *hints {
	h := &hints{ended: make(chan flight.SessionID, 100), warmup: map[flight.SessionID]bool{}}
	ctx, stop := context.WithCancel(x.ctx)
	over := make(chan error, 1)
	go func() { over <- n.Watch(ctx, func(id flight.SessionID) { h.ended <- id }) }()
	x.Cleanup(func() {
		stop()
		require.ErrorIs(x, <-over, context.Canceled)
	})
	for {
		s := x.remoteSession(n, x.ttl)
		h.warmup[s.Ref().ID] = true
		require.NoError(x, s.Close(x.ctx))
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-h.ended:
			return h
		case <-timer.C:
		}
	}
}

// next requires the next reported session, except warm-up sessions.
func (h *hints) next(x *suite, want flight.SessionID) {
	x.Helper()
	for {
		select {
		case id := <-h.ended:
			if !h.warmup[id] {
				require.Equal(x, want, id)
				return
			}
		case <-x.ctx.Done():
			x.Fatal("Watch reported no session")
		}
	}
}
