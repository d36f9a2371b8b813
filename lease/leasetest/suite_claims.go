package leasetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var claimCases = []testCase{
	{name: "ClaimHoldRelease", run: func(x *exam) {
		a, b := x.kept(x.node(Options{}), "a:1"), x.kept(x.node(Options{}), "b:1")
		l := x.take(a, key("1"))
		if l.Claim().Session != a.ID() || l.Claim().Revision <= 0 || l.Claim().Epoch != 1 {
			x.Fatalf("claim %+v of session %s", l.Claim(), a.ID())
		}
		if trust := l.Trust(); trust <= 0 || trust > TTL-lease.Margin(TTL) {
			x.Fatalf("trust %v", trust)
		}
		x.held(b, key("1"), l.Claim())
		x.held(a, key("1"), l.Claim())
		l.Release()
		l.Release()
		x.dies(l, lease.ErrReleased)
		if next := x.free(b, key("1")); next.Compare(l.Claim()) <= 0 {
			x.Fatalf("claim %+v is not newer than %+v", next, l.Claim())
		}
	}},
	{name: "TryAcquireRightAfterRelease", run: func(x *exam) {
		s := x.kept(x.node(Options{}), "a:1")
		var last flight.Claim
		for range 20 {
			l, err := s.TryAcquire(x.ctx, key("1"))
			x.ok(err)
			if l.Claim().Compare(last) <= 0 {
				x.Fatalf("claim %+v is not newer than %+v", l.Claim(), last)
			}
			last = l.Claim()
			l.Release()
		}
	}},
	{name: "Hazard11_CallersOfOneSessionQueue", run: func(x *exam) { crowd(x, x.kept(x.node(Options{}), "a:1")) }},
	{name: "Hazard11_CrowdOnTwoNodes", run: func(x *exam) {
		a, b := x.node(Options{}), x.node(Options{})
		crowd(x, x.kept(a, "a:1"), x.kept(a, "a:2"), x.kept(b, "b:1"))
	}},
	{name: "Hazard12_ClaimedAgainIsAnotherClaim", run: func(x *exam) {
		s := x.kept(x.node(Options{}), "a:1")
		old := x.take(s, key("1"))
		old.Release()
		l := x.take(s, key("1"))
		if l.Claim().Session != old.Claim().Session || l.Claim().Revision <= old.Claim().Revision {
			x.Fatalf("claimed again: %+v after %+v", l.Claim(), old.Claim())
		}
		old.Release() // yesterday's holder takes nothing away
		x.held(x.kept(x.node(Options{}), "b:1"), key("1"), l.Claim())
	}},
	{name: "BatchedClaimsStandAlone", run: func(x *exam) {
		n := x.node(Options{})
		s := x.kept(n, "a:1")
		other := x.kept(x.node(Options{}), "b:1")
		taken := x.take(other, key("taken"))
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if i%10 == 0 {
					_, err := s.TryAcquire(x.ctx, key("taken"))
					if !errors.Is(err, lease.ErrHeld) {
						x.Errorf("the taken key: %v", err)
					}
					return
				}
				l, err := s.TryAcquire(x.ctx, key(fmt.Sprint(i)))
				if err != nil {
					x.Errorf("key %d: %v", i, err)
					return
				}
				if i%2 == 0 {
					l.Release()
				}
			})
		}
		all.Wait()
		x.held(s, key("taken"), taken.Claim())
	}},
	{name: "CallerThatLeavesLeavesNothing", run: func(x *exam) {
		a, b := x.kept(x.node(Options{}), "a:1"), x.kept(x.node(Options{}), "b:1")
		l := x.take(a, key("1"))
		for _, s := range []lease.Session{a, b} { // queued in this process, and waiting for another
			ctx, cancel := context.WithCancel(x.ctx)
			done := make(chan error, 1)
			go func() { _, err := s.Acquire(ctx, key("1")); done <- err }()
			cancel()
			x.wants(<-done, context.Canceled)
		}
		l.Release()
		x.free(b, key("1"))
		x.free(a, key("1"))
	}},
	{name: "WaitersAreWoken", run: func(x *exam) {
		a, b := x.kept(x.node(Options{}), "a:1"), x.kept(x.node(Options{}), "b:1")
		began := time.Now()
		const rounds = 5
		for range rounds {
			l := x.take(a, key("1"))
			got := make(chan error, 1)
			go func() {
				heir, err := b.Acquire(x.ctx, key("1"))
				if err == nil {
					heir.Release()
				}
				got <- err
			}()
			x.wants(x.waits(b, key("1")), lease.ErrHeld) // it waits for the holder elsewhere
			l.Release()
			x.ok(<-got)
		}
		if took := time.Since(began); took > rounds*time.Second {
			x.Errorf("%d handovers took %v: polling alone, without hints, takes that long", rounds, took)
		}
	}},
	{name: "ClaimsAreListed", run: func(x *exam) {
		n := x.node(Options{})
		s := x.kept(n, "a:1")
		want := map[flight.Key]flight.Claim{}
		for i := range 5 {
			k := key(fmt.Sprint(i))
			want[k] = x.take(s, k).Claim()
		}
		all, err := x.node(Options{}).Claims(x.ctx)
		x.ok(err)
		if len(all) != len(want) {
			x.Fatalf("listed: %+v", all)
		}
		for _, h := range all {
			if h.Claim != want[h.Key] || h.Owner != "a:1" {
				x.Errorf("listed: %+v, want %+v", h, want[h.Key])
			}
		}
	}},
	{name: "Hazard16_17_AHolderIsRemoved", run: func(x *exam) {
		a, b := x.node(Options{}), x.node(Options{})
		hung, s := x.kept(a, "a:1"), x.kept(b, "b:1")
		l := x.take(hung, key("1"))
		wrong := l.Claim()
		wrong.Revision--
		x.ok(b.Remove(x.ctx, key("1"), wrong))
		x.held(s, key("1"), l.Claim())
		x.ok(b.Remove(x.ctx, key("1"), l.Claim()))
		x.ok(b.Remove(x.ctx, key("1"), l.Claim()))
		if next := x.free(s, key("1")); next.Compare(l.Claim()) <= 0 {
			x.Fatalf("claim %+v is not newer than %+v", next, l.Claim())
		}
		mine := x.take(hung, key("2"))
		x.ok(a.Remove(x.ctx, key("2"), mine.Claim()))
		x.dies(mine, lease.ErrLost)
		x.free(s, key("2"))
	}},
}

// crowd lets many callers of several sessions fight for two keys: at any moment one has each, and claims only get
// newer.
func crowd(x *exam, sessions ...lease.Session) {
	const callers, rounds = 6, 3
	var holders [2]atomic.Int32
	var mu sync.Mutex
	var last [2]flight.Claim
	var all sync.WaitGroup
	for i := range callers * len(sessions) {
		all.Go(func() {
			for range rounds {
				k := i % len(holders)
				l, err := sessions[i%len(sessions)].Acquire(x.ctx, key(fmt.Sprint(k)))
				if err != nil {
					x.Errorf("acquire: %v", err)
					return
				}
				if n := holders[k].Add(1); n != 1 {
					x.Errorf("%d holders of key %d", n, k)
				}
				mu.Lock()
				if l.Claim().Compare(last[k]) <= 0 {
					x.Errorf("claim %+v after %+v", l.Claim(), last[k])
				}
				last[k] = l.Claim()
				mu.Unlock()
				holders[k].Add(-1)
				l.Release()
			}
		})
	}
	all.Wait()
}
