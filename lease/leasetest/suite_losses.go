package leasetest

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var lossCases = []testCase{
	{name: "RevokedLeaseIsNoticed", run: func(x *exam) {
		n := x.node(Options{})
		s, other := x.kept(n, "a:1"), x.kept(x.node(Options{}), "b:1")
		l := x.take(s, key("1"))
		id := s.ID()
		x.Expire(x.T, id)
		newer := x.take(other, key("1"))
		if newer.Claim().Compare(l.Claim()) <= 0 {
			x.Fatalf("claim %+v is not newer than %+v", newer.Claim(), l.Claim())
		}
		x.dies(l, lease.ErrLost)
		l.Release() // takes nothing away
		x.held(other, key("1"), newer.Claim())
		again := x.take(s, key("2")) // the session goes on, under another id
		if again.Claim().Session == id || s.ID() == id {
			x.Fatalf("session %s goes on as %s", id, again.Claim().Session)
		}
	}},
	{name: "ClaimOnADeadSessionFailsAlone", run: func(x *exam) {
		n := x.node(Options{})
		dead, alive := x.remote(n, TTL), x.kept(n, "a:1")
		x.Expire(x.T, dead.ID())
		done := make(chan error, 1)
		go func() { _, err := dead.TryAcquire(x.ctx, key("1")); done <- err }()
		x.free(alive, key("2"))
		x.wants(<-done, lease.ErrLost)
		x.free(alive, key("1"))
		_, err := dead.Renew(x.ctx)
		x.wants(err, lease.ErrLost)
	}},
	{name: "RemoteSessionThatNobodyRenewsEnds", run: func(x *exam) {
		s, other := x.remote(x.node(Options{}), TTL), x.kept(x.node(Options{}), "b:1")
		l := x.take(s, key("1"))
		x.dies(l, lease.ErrLost)
		x.free(other, key("1"))
		_, err := s.TryAcquire(x.ctx, key("2"))
		x.wants(err, lease.ErrLost)
	}},
	{name: "ReleasedAfterItWasLostHereOnly", run: func(x *exam) {
		n, s, l, there := x.lostHere()
		l.Release()
		l.Release()
		x.take(x.kept(x.node(Options{}), "b:1"), key("1")) // it stood, because its session lives
		_, err := there.Renew(x.ctx)
		x.ok(err)
		again, err := n.Session(x.ctx, s.ID())
		x.ok(err)
		x.free(again, key("2"))
	}},
	{name: "ClosedAfterItWasLostHereOnly", run: func(x *exam) {
		_, s, l, there := x.lostHere()
		x.ok(s.Close(x.ctx))
		_, err := there.Renew(x.ctx)
		x.wants(err, lease.ErrLost)
		x.free(x.kept(x.node(Options{}), "b:1"), key("1"))
		l.Release()
	}},
	{name: "KeptSessionStays", run: func(x *exam) {
		renewed := make(chan struct{}, 100)
		n := x.node(Options{Events: lease.Events{Renewed: func(flight.SessionID, time.Duration) { renewed <- struct{}{} }}})
		s := x.kept(n, "a:1")
		l := x.take(s, key("1"))
		for range 6 { // two times to live
			select {
			case <-renewed:
			case <-l.Context().Done():
				x.Fatalf("lost: %v", context.Cause(l.Context()))
			}
		}
		if l.Trust() <= 0 {
			x.Fatal("a lease that is renewed is not trusted")
		}
		x.held(x.kept(x.node(Options{}), "b:1"), key("1"), l.Claim())
	}},
	{name: "Hazard13_HolderCutOff", run: func(x *exam) { partitioned(x, CutRequests) }, cuts: true},
	{name: "Hazard15_AnswersLost", run: func(x *exam) { partitioned(x, CutAnswers) }, cuts: true},
	{name: "Hazard36_FastRestartAdoptsNothing", run: func(x *exam) {
		a := x.node(Options{Node: "n1"})
		s := x.kept(a, "a:1")
		l := x.take(s, key("1"))
		a.Partition(CutRequests) // the process is gone, as far as etcd can tell
		again := x.kept(x.node(Options{Node: "n1"}), "a:2")
		began := time.Now()
		newer := x.take(again, key("1"))
		if newer.Claim().Compare(l.Claim()) <= 0 || newer.Claim().Session == l.Claim().Session {
			x.Fatalf("the new life has %+v, the old one had %+v", newer.Claim(), l.Claim())
		}
		if waited := time.Since(began); waited >= TTL {
			x.Errorf("the new life waited %v for its own old claim", waited)
		}
		a.Partition(CutNothing)
	}, cuts: true},
}

// lostHere is a remote caller's session with a claim that its node has lost, because it is renewed through another one.
func (x *exam) lostHere() (n Node, s lease.Session, l lease.Lease, there lease.Session) {
	x.Helper()
	n = x.node(Options{})
	s = x.remote(n, TTL)
	l = x.take(s, key("1"))
	there, err := x.node(Options{}).Session(x.ctx, s.ID())
	x.ok(err)
	for l.Context().Err() == nil {
		_, err := there.Renew(x.ctx)
		x.ok(err)
		select {
		case <-l.Context().Done():
		case <-time.After(TTL / 10):
		}
	}
	x.dies(l, lease.ErrLost)
	x.held(there, key("1"), l.Claim())
	return n, s, l, there
}

// partitioned cuts a holder off: it stops to believe before anybody else gets the key, somebody else does get it, and
// the holder's session goes on when the connection is back.
func partitioned(x *exam, c Cut) {
	n := x.node(Options{})
	s, other := x.kept(n, "a:1"), x.kept(x.node(Options{}), "b:1")
	l := x.take(s, key("1"))
	trusted := make(chan time.Duration, 1)
	n.Partition(c)
	go func() {
		heir, err := other.Acquire(x.ctx, key("1"))
		trusted <- l.Trust()
		if err != nil {
			x.Errorf("the heir: %v", err)
			return
		}
		heir.Release()
	}()
	x.dies(l, lease.ErrLost)
	if trust := <-trusted; trust > 0 {
		x.Errorf("the key was claimed by another while its holder trusted it for %v", trust)
	}
	ctx, cancel := context.WithTimeout(x.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := s.TryAcquire(ctx, key("2")); err == nil {
		x.Error("a holder that is cut off claims")
	}
	n.Partition(CutNothing)
	old := l.Claim()
	for x.ctx.Err() == nil {
		again, err := s.TryAcquire(x.ctx, key("1"))
		if err != nil {
			continue // until the connection is back
		}
		if again.Claim().Session == old.Session || again.Claim().Compare(old) <= 0 {
			x.Errorf("claimed again: %+v after %+v", again.Claim(), old)
		}
		again.Release()
		return
	}
	x.Error("the session does not come back")
}

var guardCases = []testCase{
	{name: "Hazard20_RevisionWentBack", run: func(x *exam) {
		n := x.node(Options{})
		s := x.kept(n, "a:1")
		l := x.take(s, key("1"))
		x.Ledger().Saw(l.Claim().Revision + 1_000_000) // etcd was restored: the ledger has seen more than it shows
		_, err := s.TryAcquire(x.ctx, key("2"))
		x.wants(err, lease.ErrRegressed)
		x.dies(l, lease.ErrRegressed)
		_, err = n.Claims(x.ctx)
		x.wants(err, lease.ErrRegressed)
		_, err = n.NewSession(x.ctx, lease.Spec{TTL: TTL})
		x.wants(err, lease.ErrRegressed)
		x.wants(n.Ready(x.ctx), lease.ErrRegressed)
		_, err = x.node(Options{}).NewSession(x.ctx, lease.Spec{TTL: TTL, Kept: true})
		x.wants(err, lease.ErrRegressed)

		x.Ledger().RaiseEpoch()
		again := x.take(s, key("1"))
		if again.Claim().Epoch != 2 || again.Claim().Compare(l.Claim()) <= 0 {
			x.Fatalf("after the epoch was raised: %+v after %+v", again.Claim(), l.Claim())
		}
		x.ok(n.Ready(x.ctx))
	}},
	{name: "Hazard20_AnIdleNodeNoticesToo", run: func(x *exam) {
		n := x.node(Options{})
		l := x.take(x.kept(n, "a:1"), key("1"))
		x.Ledger().Saw(l.Claim().Revision + 1_000_000)
		x.dies(l, lease.ErrRegressed)
	}},
	{name: "Hazard20_GuardKeyLost", run: func(x *exam) {
		n := x.node(Options{})
		s := x.kept(n, "a:1")
		l := x.take(s, key("1"))
		x.Ledger().Saw(l.Claim().Revision)
		x.DropGuardKey(x.T)
		_, err := s.TryAcquire(x.ctx, key("2"))
		x.wants(err, lease.ErrRegressed)
		x.dies(l, lease.ErrRegressed)
		x.Ledger().RaiseEpoch()
		x.free(s, key("2"))
	}},
	{name: "Hazard21_AnOlderEpochsClaimIsVoid", run: func(x *exam) {
		n := x.node(Options{})
		s, idle, remote := x.kept(n, "a:1"), x.kept(n, "a:2"), x.remote(n, 60*time.Second)
		l, i, m := x.take(s, key("1")), x.take(idle, key("idle")), x.take(remote, key("2"))
		x.Ledger().RaiseEpoch()
		x.free(s, key("3"))
		for _, old := range []lease.Lease{l, i, m} {
			x.dies(old, lease.ErrLost)
		}
		_, err := n.Session(x.ctx, remote.ID())
		x.wants(err, lease.ErrLost)
		_, err = remote.TryAcquire(x.ctx, key("4"))
		x.wants(err, lease.ErrLost)
	}},
	{name: "Hazard21_ARemovalMeansAClaimOfItsEpoch", run: func(x *exam) {
		n := x.node(Options{})
		remote := x.remote(n, 60*time.Second)
		old := x.take(remote, key("1"))
		x.Ledger().RaiseEpoch()
		s := x.kept(n, "a:1")
		now := x.take(s, key("2"))
		// Revisions begin again in the etcd of another epoch, so the claim that is there now may have an older one's.
		then := now.Claim()
		then.Epoch = 1
		x.ok(n.Remove(x.ctx, key("2"), then))
		x.held(x.kept(x.node(Options{}), "b:1"), key("2"), now.Claim())
		x.ok(n.Remove(x.ctx, key("1"), old.Claim())) // what an older one left there can be taken away
		x.free(s, key("1"))
	}},
	{name: "NodeBehindTheEpochWaits", run: func(x *exam) {
		behind := NewLedger()
		slow := x.node(Options{Guard: behind})
		s := x.kept(slow, "slow")
		x.Ledger().RaiseEpoch()
		x.kept(x.node(Options{}), "a:1")
		_, err := s.TryAcquire(x.ctx, key("1"))
		x.wants(err, lease.ErrUnavailable)
		behind.RaiseEpoch()
		x.free(s, key("1"))
	}},
	{name: "Hazard37_TwoDeploymentsOnOnePrefix", run: func(x *exam) {
		x.kept(x.node(Options{}), "a:1")
		stranger := x.node(Options{Deployment: "another", Guard: NewLedger()})
		_, err := stranger.NewSession(x.ctx, lease.Spec{TTL: TTL, Kept: true})
		x.wants(err, lease.ErrForeign)
		_, err = stranger.Claims(x.ctx)
		x.wants(err, lease.ErrForeign)
		x.wants(stranger.Ready(x.ctx), lease.ErrForeign)
		x.free(x.kept(x.node(Options{}), "a:2"), key("1"))
	}},
}
