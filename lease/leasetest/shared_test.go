package leasetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// Whatever gathers while a batch is on its way goes out together.
func TestClaimsAreCommittedInGroups(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		synctest.Wait()
		f.Freeze()
		const callers = 300
		before := f.Commits()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { take(t, s, key(fmt.Sprint(i))) })
		}
		synctest.Wait()
		f.Thaw()
		all.Wait()
		if batches := f.Commits() - before; batches > 8 {
			t.Errorf("%d claims went out in %d batches", callers, batches)
		}
	})
}

// A session that carries very many claims spreads them over several etcd leases.
func TestHazard18_ClaimsAreSpread(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		bySession := map[flight.SessionID]int{}
		for i := range 2500 {
			bySession[take(t, s, key(fmt.Sprint(i))).Claim().Session]++
		}
		if len(bySession) != 2 {
			t.Errorf("2500 claims stand on %d leases: %v", len(bySession), bySession)
		}
	})
}

func TestPooledSessionCostsNoWrite(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		remote := lease.Spec{TTL: ttl, Owner: "remote"}
		if _, err := f.NewSession(t.Context(), remote); err != nil { // fills the pool
			t.Fatal(err)
		}
		time.Sleep(10 * ttl) // and the pool stays fresh
		before := f.World.Revision()
		s, err := f.NewSession(t.Context(), remote)
		if err != nil {
			t.Fatal(err)
		}
		l := take(t, s, key("1"))
		if wrote := f.World.Revision() - before; wrote != 1 || l.Trust() < ttl/3 {
			t.Errorf("the first open wrote %d times, trust %v", wrote, l.Trust())
		}
	})
}

// The ledger learns of a revision between our request and its answer: that is no regression.
func TestRevisionsLearntMeanwhileAreNoRegression(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		f.Slow(time.Second)
		done := make(chan error, 1)
		go func() { _, err := s.TryAcquire(t.Context(), key("1")); done <- err }()
		time.Sleep(500 * time.Millisecond)
		f.Slow(0)
		f.World.SetRevision(f.World.Revision() + 5) // others go on
		f.Ledger.Saw(f.World.Revision())
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// An etcd that lost its past and then overtakes what was known is still another one.
func TestHazard20_RefusalLastsThoughTheRevisionCatchesUp(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		f.Ledger.Saw(f.World.Revision() + 10)
		if _, err := s.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrRegressed) {
			t.Fatal(err)
		}
		f.World.SetRevision(f.World.Revision() + 100)
		time.Sleep(time.Hour)
		if _, err := s.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrRegressed) {
			t.Fatalf("an hour later: %v", err)
		}
	})
}

// A remote session is renewed through another node. This one does not know, and must not take its claims for strays.
func TestRemoteClaimsAreNobodysStrays(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		remote, err := f.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "remote"})
		if err != nil {
			t.Fatal(err)
		}
		l := take(t, remote, key("1"))
		other := f.Peer(t, leasetest.Options{})
		for range 10 {
			there, err := other.Session(t.Context(), remote.ID())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := there.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl / 3)
		}
		if l.Trust() > 0 {
			t.Fatal("the first node trusts a session that it has not renewed")
		}
		var held *lease.HeldError
		if _, err := kept(t, f).TryAcquire(t.Context(), key("1")); !errors.As(err, &held) || held.Claim != l.Claim() {
			t.Fatalf("got %v, want held by %+v", err, l.Claim())
		}
		again, err := f.Session(t.Context(), remote.ID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.TryAcquire(t.Context(), key("1")); !errors.As(err, &held) {
			t.Fatalf("the session itself, found again: %v", err)
		}
		if err := f.Remove(t.Context(), key("1"), l.Claim()); err != nil {
			t.Fatal(err)
		}
		take(t, again, key("1"))
	})
}

// What removes a claim may be asked twice at once, and beside its release.
func TestRemovalsOfOneKeyInOneBatch(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		synctest.Wait()
		f.Freeze()
		var all sync.WaitGroup
		all.Go(func() { take(t, s, key("2")) }) // something on its way, so that the rest gathers
		synctest.Wait()
		for range 5 {
			all.Go(func() {
				if err := f.Remove(t.Context(), key("1"), l.Claim()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { take(t, s, key("1")) })
		synctest.Wait()
		f.Thaw()
		all.Wait()
	})
}

// A life of the node buries earlier ones, not itself.
func TestHazard36_ALifeDoesNotBuryItself(t *testing.T) {
	boot := lease.Boot{1}
	bubble(t, leasetest.Options{Node: "n1", Boot: boot}, func(t *testing.T, f *leasetest.Fake) {
		l := take(t, kept(t, f), key("1"))
		f.Peer(t, leasetest.Options{Node: "n1", Boot: boot})
		f.Peer(t, leasetest.Options{Node: "n2"})
		time.Sleep(ttl)
		if l.Trust() <= 0 {
			t.Error(context.Cause(l.Context()))
		}
	})
}
