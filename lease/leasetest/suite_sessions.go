package leasetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var sessionCases = []testCase{
	{name: "SpecsThatCannotBe", run: func(x *exam) {
		n := x.node(Options{})
		for _, spec := range []lease.Spec{
			{TTL: time.Second}, {TTL: -1}, {TTL: 2500 * time.Millisecond}, {TTL: time.Hour},
			{Owner: strings.Repeat("x", lease.MaxOwner+1)},
		} {
			_, err := n.NewSession(x.ctx, spec)
			var invalid *flight.InvalidError
			if !errors.As(err, &invalid) {
				x.Errorf("%+v: %v", spec, err)
			}
		}
	}},
	{name: "CloseGivesEverythingUp", run: func(x *exam) {
		n := x.node(Options{})
		s, other := x.kept(n, "a:1"), x.kept(x.node(Options{}), "b:1")
		one, two := x.take(s, key("1")), x.take(s, key("2"))
		two.Release()
		x.ok(s.Close(x.ctx))
		x.dies(one, lease.ErrClosed)
		_, err := s.TryAcquire(x.ctx, key("1"))
		x.wants(err, lease.ErrClosed)
		_, err = s.Renew(x.ctx)
		x.wants(err, lease.ErrClosed)
		for _, id := range []string{"1", "2"} {
			l, err := other.TryAcquire(x.ctx, key(id))
			x.ok(err)
			l.Release()
		}
	}},
	{name: "ClosedServiceRefuses", run: func(x *exam) {
		n := x.node(Options{})
		s := x.kept(n, "a:1")
		l := x.take(s, key("1"))
		waiting := make(chan error, 1)
		go func() { _, err := s.Acquire(x.ctx, key("1")); waiting <- err }()
		x.ok(n.Close(x.ctx))
		x.ok(n.Close(x.ctx))
		x.dies(l, lease.ErrClosed)
		x.wants(<-waiting, lease.ErrClosed)
		_, err := n.NewSession(x.ctx, lease.Spec{TTL: TTL})
		x.wants(err, lease.ErrClosed)
		l, err = x.kept(x.node(Options{}), "b:1").TryAcquire(x.ctx, key("1"))
		x.ok(err)
		l.Release()
	}},
	{name: "RenewGivesTheWholeWindow", run: func(x *exam) {
		for _, s := range []lease.Session{x.kept(x.node(Options{}), "a:1"), x.remote(x.node(Options{}), TTL)} {
			trust, err := s.Renew(x.ctx)
			x.ok(err)
			if want := TTL - lease.Margin(TTL); trust != want {
				x.Errorf("trust %v, want %v from the moment before it was sent", trust, want)
			}
		}
	}},
	{name: "RemoteSessionIsKnownEverywhere", run: func(x *exam) {
		a, b := x.node(Options{}), x.node(Options{})
		s := x.remote(a, 6*time.Second) // from the pool, when it comes to that
		l := x.take(s, key("1"))
		there, err := b.Session(x.ctx, s.ID())
		x.ok(err)
		if there.ID() != s.ID() {
			x.Fatalf("found %s, want %s", there.ID(), s.ID())
		}
		x.held(there, key("1"), l.Claim())
		_, err = there.Renew(x.ctx)
		x.ok(err)
		second := x.take(there, key("2"))
		if second.Claim().Session != s.ID() || second.Trust() <= 0 {
			x.Fatalf("claim %+v through the other node, trust %v", second.Claim(), second.Trust())
		}
		x.ok(b.Remove(x.ctx, key("1"), l.Claim())) // what a report that arrives at the other node does
		x.ok(there.Close(x.ctx))
		_, err = a.Session(x.ctx, "ses_unknown")
		x.wants(err, lease.ErrLost)
		_, err = b.Session(x.ctx, s.ID())
		x.wants(err, lease.ErrLost)
		_, err = s.Renew(x.ctx)
		x.wants(err, lease.ErrLost)
		x.dies(l, lease.ErrLost)
	}},
	{name: "RemoteSessionOutlivesItsNode", run: func(x *exam) {
		a := x.node(Options{Node: "n1"})
		s := x.remote(a, 6*time.Second)
		l := x.take(s, key("1"))
		x.ok(a.Close(x.ctx))
		again := x.node(Options{Node: "n1"})
		there, err := again.Session(x.ctx, s.ID())
		x.ok(err)
		x.held(there, key("1"), l.Claim())
	}},
	{name: "KeptSessionIsNobodyElses", run: func(x *exam) {
		s := x.kept(x.node(Options{}), "a:1")
		_, err := x.node(Options{}).Session(x.ctx, s.ID())
		x.wants(err, lease.ErrLost)
	}},
	{name: "PooledSessionsAreDistinct", run: func(x *exam) {
		n := x.node(Options{})
		seen := map[flight.SessionID]bool{}
		for i := range 20 {
			s := x.remote(n, 6*time.Second)
			if seen[s.ID()] {
				x.Fatalf("session %s was given out twice", s.ID())
			}
			seen[s.ID()] = true
			l := x.take(s, key(fmt.Sprint(i)))
			if l.Trust() <= 0 {
				x.Fatalf("trust %v", l.Trust())
			}
		}
		all, err := n.Claims(x.ctx)
		x.ok(err)
		for _, h := range all {
			if h.Owner != "remote" || !seen[h.Claim.Session] {
				x.Errorf("claim %+v", h)
			}
		}
	}},
	{name: "WatchHintsAtDeaths", run: func(x *exam) {
		n := x.node(Options{})
		hints := newHints(x, n)
		dying, living := x.remote(n, TTL), x.kept(n, "a:1")
		x.take(dying, key("dead"))
		x.take(living, key("living"))
		x.free(living, key("released"))
		quiet := x.remote(n, TTL)
		x.free(quiet, key("quiet"))
		x.ok(quiet.Close(x.ctx))
		x.Expire(x.T, dying.ID())
		if got := hints.next(x); got != key("dead") {
			x.Fatalf("hint at %s", got)
		}
		x.ok(living.Close(x.ctx))
		if got := hints.next(x); got != key("living") {
			x.Fatalf("hint at %s", got)
		}
	}},
	{name: "Hazard18_ManyDieAtOnce", run: func(x *exam) {
		n := x.node(Options{})
		heir := x.kept(x.node(Options{}), "heir")
		var ids []flight.SessionID
		for i := range 30 {
			s := x.remote(n, TTL)
			x.take(s, key(fmt.Sprint(i)))
			ids = append(ids, s.ID())
		}
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				l, err := heir.Acquire(x.ctx, key(fmt.Sprint(i)))
				if err != nil {
					x.Errorf("key %d: %v", i, err)
					return
				}
				l.Release()
			})
		}
		for _, id := range ids {
			x.Expire(x.T, id)
		}
		all.Wait()
	}},
}

// hints collects what Watch says. It is set up before anything dies: the watch of a key that nobody holds must have
// started by then, so it first sees the death of a session made for that.
type hints struct{ keys chan flight.Key }

func newHints(x *exam, n lease.Service) *hints {
	h := &hints{keys: make(chan flight.Key, 100)}
	ctx, stop := context.WithCancel(x.ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Watch(ctx, func(k flight.Key) { h.keys <- k }) }()
	x.Cleanup(func() {
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			x.Errorf("watch ended: %v", err)
		}
	})
	for started := false; !started; { // sacrifices, until one is seen
		s := x.remote(n, TTL)
		x.take(s, key("sacrifice"))
		x.Expire(x.T, s.ID())
		select {
		case <-h.keys:
			started = true
		case <-time.After(200 * time.Millisecond):
		}
	}
	return h
}

// next is the next key hinted at, sacrifices left out.
func (h *hints) next(x *exam) flight.Key {
	x.Helper()
	for {
		select {
		case k := <-h.keys:
			if k != key("sacrifice") {
				return k
			}
		case <-x.ctx.Done():
			x.Fatal("no hint came")
		}
	}
}
