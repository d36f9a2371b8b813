package leasetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// In these tests time is virtual: a wait of an hour costs nothing.

const ttl = 15 * time.Second

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func kept(t *testing.T, f *leasetest.Fake) lease.Session {
	t.Helper()
	s, err := f.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "a:1", Kept: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t *testing.T, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	l, err := s.Acquire(ctx, k)
	if err != nil {
		t.Fatalf("acquire %s: %v", k, err)
	}
	return l
}

func bubble(t *testing.T, o leasetest.Options, run func(t *testing.T, f *leasetest.Fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, leasetest.New(t, o)) })
}

func TestLostAnswerIsSettledByReading(t *testing.T) {
	won := make(chan int, 10)
	events := lease.Events{Ambiguous: func(_, w int, _ error) { won <- w }}
	bubble(t, leasetest.Options{Events: events}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		f.LoseAnswers(1)
		l, err := s.TryAcquire(t.Context(), key("1"))
		if n := <-won; err != nil || n != 1 {
			t.Fatalf("the claim landed, its answer was lost: %v, %d won", err, n)
		}
		all, err := f.Claims(t.Context())
		if err != nil || len(all) != 1 || all[0].Claim != l.Claim() {
			t.Fatalf("claims %+v, %v; want %+v", all, err, l.Claim())
		}
		f.LoseAnswers(1)
		l.Release()
		if next := take(t, s, key("1")); next.Claim().Compare(l.Claim()) <= 0 {
			t.Fatalf("claimed again: %+v after %+v", next.Claim(), l.Claim())
		}
	})
}

func TestLostAnswerOfARefusedClaim(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, theirs := kept(t, f), f.HoldElsewhere(t, key("1"), "b:1")
		f.LoseAnswers(1)
		if _, err := s.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("refused, and the answer was lost: %v", err)
		}
		var held *lease.HeldError
		if _, err := s.TryAcquire(t.Context(), key("1")); !errors.As(err, &held) || held.Claim != theirs.Claim() || held.Owner != "b:1" {
			t.Fatalf("the next try: %v", err)
		}
	})
}

// A claim that nobody believed in lands after all: it must not lock its key.
func TestClaimThatLandsLateIsRemoved(t *testing.T) {
	strays := make(chan flight.Key, 10)
	t.Run("by the patrol", func(t *testing.T) {
		events := lease.Events{Stray: func(k flight.Key, _ flight.Claim) { strays <- k }}
		bubble(t, leasetest.Options{Events: events}, func(t *testing.T, f *leasetest.Fake) {
			s := kept(t, f)
			f.Delay()
			if _, err := s.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("got %v", err)
			}
			time.Sleep(20 * time.Second)
			f.LandLate()
			take(t, kept(t, f.Peer(t, leasetest.Options{})), key("1"))
			if k := <-strays; k != key("1") {
				t.Errorf("stray %s was removed", k)
			}
		})
	})
	t.Run("by the next caller", func(t *testing.T) {
		bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
			s := kept(t, f)
			f.Delay()
			_, _ = s.TryAcquire(t.Context(), key("1"))
			f.LandLate()
			began := time.Now()
			if _, err := s.TryAcquire(t.Context(), key("1")); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("waited %v for a stray of its own", waited)
			}
		})
	})
	t.Run("its caller left", func(t *testing.T) {
		bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
			s := kept(t, f)
			synctest.Wait()
			f.Freeze()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.TryAcquire(ctx, key("1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			f.Thaw()
			time.Sleep(5 * time.Second)
			if all, err := f.Claims(t.Context()); err != nil || len(all) != 0 {
				t.Fatalf("claims %+v, %v", all, err)
			}
			take(t, s, key("1"))
		})
	})
}

// A claim is answered when its session was lost here, while it is renewed through another node: nobody owns the claim, and it
// is let go.
func TestClaimThatComesTooLateForItsSession(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		there := f.Peer(t, leasetest.Options{})
		mine, err := f.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "remote"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl - lease.Margin(ttl) - time.Second)
		if _, err := there.Session(t.Context(), mine.ID()); err != nil { // renews it
			t.Fatal(err)
		}
		f.Slow(2 * time.Second)
		if _, err := mine.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrLost) {
			t.Fatalf("got %v", err)
		}
		f.Slow(0)
		time.Sleep(time.Second)
		if all, err := there.Claims(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("nobody owns %+v, %v", all, err)
		}
		take(t, kept(t, f), key("1"))
	})
}

// A claim that lands late is looked for until a look has shown that it is not there: a node that was cut off for longer than
// a request can be on its way has seen nothing yet.
func TestClaimThatLandsLateIsNotForgottenUnseen(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		there := f.Peer(t, leasetest.Options{})
		mine, err := f.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "remote"})
		if err != nil {
			t.Fatal(err)
		}
		other, err := there.Session(t.Context(), mine.ID())
		if err != nil {
			t.Fatal(err)
		}
		f.Delay()
		if _, err := mine.TryAcquire(t.Context(), key("1")); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		f.Partition(leasetest.CutRequests)
		for range 30 { // its session is renewed through another node meanwhile
			time.Sleep(5 * time.Second)
			if _, err := other.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			if all, err := there.Claims(t.Context()); err != nil || len(all) != 0 {
				t.Fatalf("claims %+v, %v", all, err)
			}
		}
		f.LandLate()
		f.Partition(leasetest.CutNothing)
		time.Sleep(10 * time.Second)
		if all, err := there.Claims(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("nobody owns %+v, %v", all, err)
		}
	})
}

func TestHazard19_WatchLost(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, theirs := kept(t, f), f.HoldElsewhere(t, key("1"), "b:1")
		f.LoseHints()
		got := make(chan lease.Lease)
		go func() {
			l, err := s.Acquire(t.Context(), key("1"))
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		theirs.Release()
		began := time.Now()
		<-got
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("without hints the key was noticed after %v", waited)
		}
	})
}

// The monotonic clock stands still while the machine is suspended: no timer fires, and yet trust is gone.
func TestHazard27_SuspendedMachineStopsToBelieve(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		l := take(t, kept(t, f), key("1"))
		if l.Trust() <= 0 {
			t.Fatal("no trust at the start")
		}
		f.Suspend(time.Hour)
		if trust := l.Trust(); trust > 0 {
			t.Errorf("after an hour of suspension the lease is trusted for %v", trust)
		}
	})
}

// A renewal that is answered slowly prolongs trust from the moment when it was sent.
func TestSlowAnswersStretchNothing(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		f.Slow(4 * time.Second)
		trust, err := s.Renew(t.Context())
		if whole := ttl - lease.Margin(ttl); err != nil || trust != whole || l.Trust() != whole-4*time.Second {
			t.Errorf("trust %v from the sending, %v now, %v; want %v and 4s less", trust, l.Trust(), err, whole)
		}
	})
}

func TestHazard07_FrozenHolderFindsNoTrust(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		old := s.ID()
		f.Freeze()
		heir := take(t, kept(t, f.Peer(t, leasetest.Options{})), key("1"))
		if l.Trust() > 0 || context.Cause(l.Context()) == nil {
			t.Fatalf("the key went to %+v while its holder trusted it for %v", heir.Claim(), l.Trust())
		}
		time.Sleep(3 * ttl)
		f.Thaw()
		again := take(t, s, key("2"))
		if again.Claim().Session == old || l.Trust() > 0 {
			t.Fatalf("thawed, it goes on as %+v; the old lease is trusted for %v", again.Claim(), l.Trust())
		}
		if heir.Trust() <= 0 {
			t.Error("the heir lost the key to the one that thawed")
		}
	})
}

// Past local expiry nothing is sent for the lost lease, or etcd would keep the key locked for a holder that does
// nothing.
func TestHazard15_NoRenewalAfterLocalExpiry(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		f.Partition(leasetest.CutAnswers)
		<-l.Context().Done()
		lost := time.Now()
		take(t, kept(t, f.Peer(t, leasetest.Options{})), key("1"))
		if waited := time.Since(lost); waited > time.Second {
			t.Errorf("the lost lease was revoked after %v", waited)
		}
		sent := f.Renewals()
		if _, err := s.Renew(t.Context()); !errors.Is(err, lease.ErrLost) {
			t.Errorf("renewing what is lost: %v", err)
		}
		time.Sleep(10 * ttl)
		if more := f.Renewals() - sent; more > 0 {
			t.Errorf("%d renewals were sent after the lease was given up", more)
		}
	})
}

// A lease that comes back to life with a backup is not believed in by who lost it.
func TestHazard21_ALostLeaseIsNotTakenUpAgain(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		f.Partition(leasetest.CutRequests)
		<-l.Context().Done()
		f.Partition(leasetest.CutNothing) // before etcd noticed anything: the lease still lives there
		next := take(t, s, key("1"))
		if next.Claim().Session == l.Claim().Session || next.Claim().Revision <= l.Claim().Revision || l.Trust() > 0 {
			t.Errorf("%+v after %+v, trusted for %v", next.Claim(), l.Claim(), l.Trust())
		}
	})
}

func TestReleaseIsTriedUntilItLands(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		f.Partition(leasetest.CutRequests)
		l.Release()
		time.Sleep(7 * time.Second) // the first try and the reading after it are given up
		f.Partition(leasetest.CutNothing)
		if _, err := s.TryAcquire(t.Context(), key("1")); err != nil {
			t.Fatalf("the session lives, its release was lost: %v", err)
		}
		_ = s.Close(t.Context())
		take(t, kept(t, f.Peer(t, leasetest.Options{})), key("1"))
	})
}

// Revisions begin again in an etcd that took the place of a lost one: a release of the epoch before means nobody there.
func TestHazard21_AReleaseMeansAClaimOfItsEpoch(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := take(t, s, key("1"))
		was := l.Claim().Revision
		f.Partition(leasetest.CutRequests)
		l.Release()
		time.Sleep(7 * time.Second) // it is kept for later

		f.World.Expire(l.Claim().Session)
		f.World.SetGuardKey(nil)
		f.World.SetRevision(0)
		f.Ledger.RaiseEpoch()
		other := kept(t, f.Peer(t, leasetest.Options{}))
		for f.World.Revision() < was-1 {
			take(t, other, key(fmt.Sprint("other-", f.World.Revision())))
		}
		now := take(t, other, key("1"))
		if now.Claim().Revision != was {
			t.Fatalf("the test wants revision %d, not %d", was, now.Claim().Revision)
		}
		f.Partition(leasetest.CutNothing)
		time.Sleep(10 * time.Second)
		if all, err := f.Claims(t.Context()); err != nil || !slices.ContainsFunc(all, func(h lease.Held) bool { return h.Claim == now.Claim() }) {
			t.Errorf("%+v is gone: %+v, %v", now.Claim(), all, err)
		}
		if now.Trust() <= 0 {
			t.Error("its holder was told")
		}
		take(t, s, key("2"))
	})
}

// Whoever holds a key, it is held: a claim whose value cannot be read keeps its key, and nobody from the others.
func TestAClaimThatCannotBeReadIsHeld(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		peer := f.Peer(t, leasetest.Options{})
		other := kept(t, peer)
		value := 1 + 4 + 16 + 3 + len(leasetest.Deployment) + len(s.ID()) + len("a:1") + 8
		for at := range value {
			k := key(fmt.Sprint(at))
			l := take(t, s, k)
			f.World.Spoil(k, at)
			if _, err := other.TryAcquire(t.Context(), k); !errors.Is(err, lease.ErrHeld) {
				t.Errorf("byte %d: %v", at, err)
			}
			all, err := peer.Claims(t.Context())
			if err != nil || len(all) != 1 || all[0].Key != k || all[0].Claim.Revision != l.Claim().Revision {
				t.Errorf("byte %d: %+v, %v", at, all, err)
			}
			l.Release()
			take(t, other, k).Release()
			synctest.Wait()
			time.Sleep(time.Second)
		}
	})
}

func TestCloseWaitsForReleases(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, err := f.NewSession(t.Context(), lease.Spec{TTL: ttl, Owner: "remote"})
		if err != nil {
			t.Fatal(err)
		}
		l := take(t, s, key("1"))
		f.Freeze()
		l.Release()
		closed := make(chan error, 1)
		go func() { closed <- f.Close(context.Background()) }()
		time.Sleep(time.Second)
		select {
		case <-closed:
			t.Fatal("closed before the release was done")
		default:
		}
		f.Thaw()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		if all, err := f.Peer(t, leasetest.Options{}).Claims(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("claims %+v, %v", all, err)
		}
	})
}
