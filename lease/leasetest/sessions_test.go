package leasetest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// A session that carries very many leases spreads them over several etcd leases. Room that was given back is used again.
func TestHazard18_LeasesAreSpread(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		bySession := map[flight.SessionID][]lease.Lease{}
		for i := range 2500 {
			ref := s.Ref()
			l := reserve(t, s, key(fmt.Sprint(i)))
			if i%2000 != 0 {
				require.Equal(t, ref, l.Session(), "Ref names the session of the next lease")
			}
			bySession[l.Session().ID] = append(bySession[l.Session().ID], l)
		}
		require.Len(t, bySession, 2)
		for _, leases := range bySession {
			require.LessOrEqual(t, len(leases), 2000)
			for _, l := range leases {
				l.Release()
			}
		}
		reserve(t, s, key("again"))
		require.Len(t, f.World.Sessions(), 2)
	})
}

// An answer that was lost never comes: no call waits for it for ever, whatever its context.
func TestLostAnswersAreNotWaitedFor(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		long := lease.Spec{TTL: 10 * time.Minute}
		renewed, closed := newSession(t, f, long), newSession(t, f, long)
		id := newSession(t, f.Peer(t, leasetest.Options{}), long).Ref().ID
		f.Partition(leasetest.CutAnswers)
		ctx := context.Background()
		for name, call := range map[string]func() error{
			"Ready":      func() error { return f.Ready(ctx) },
			"Living":     func() error { _, err := f.Living(ctx); return err },
			"RaiseGuard": func() error { _, _, err := f.RaiseGuard(ctx); return err },
			"Claims":     func() error { _, err := f.Claims(ctx); return err },
			"NewSession": func() error { _, err := f.NewSession(ctx, lease.Spec{Kept: true}); return err },
			"Session":    func() error { _, err := f.Session(ctx, id); return err },
			"Renew":      func() error { _, err := renewed.Renew(ctx); return err },
			"EndSession": func() error { return f.EndSession(ctx, id) },
			"Close":      func() error { return closed.Close(ctx) },
		} {
			began := time.Now()
			require.ErrorIs(t, call(), lease.ErrUnavailable, name)
			require.LessOrEqual(t, time.Since(began), 30*time.Second, name)
		}
		f.Partition(leasetest.CutNothing)
	})
}

// A trusted session gives leases without asking etcd.
func TestReserveMakesNoCall(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, remote := kept(t, f), newSession(t, f, lease.Spec{TTL: ttl})
		f.Partition(leasetest.CutRequests)
		for _, s := range []lease.Session{s, remote} {
			began := time.Now()
			l := reserve(t, s, key("1"))
			require.Zero(t, time.Since(began))
			require.Positive(t, l.Trust())
		}
	})
}

func TestPooledSessionCostsNoWrite(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		spec := lease.Spec{TTL: ttl, OneShot: true}
		newSession(t, f, spec) // fills the pool
		time.Sleep(10 * ttl)   // and the pool stays fresh
		before := f.World.Revision()
		s := newSession(t, f, spec)
		require.Equal(t, before, f.World.Revision())
		marker := f.World.Marker(s.Ref().ID)
		require.NotNil(t, marker)
		require.Equal(t, s.Ref(), marker.Session)
		require.True(t, marker.Session.OneShot)
		l := claim(t, s, key("1"))
		require.Equal(t, before+1, f.World.Revision())
		require.Greater(t, l.Trust(), ttl/3)
	})
}

// Sessions in the pool of an older lease epoch are not given out.
func TestPoolForgetsAnOlderEpoch(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		spec := lease.Spec{TTL: ttl, OneShot: true}
		newSession(t, f, spec)
		synctest.Wait()
		f.Ledger.RaiseEpoch()
		for range 20 {
			require.EqualValues(t, 2, newSession(t, f, spec).Ref().Epoch)
		}
	})
}

// A remote session is renewed through another node, and this one does not know: the leases given here are not trusted,
// and what was claimed under the session stays claimed.
func TestRemoteSessionRenewedElsewhere(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		remote := newSession(t, f, lease.Spec{TTL: ttl, Owner: "remote"})
		id := remote.Ref().ID
		l := claim(t, remote, key("1"))
		other := f.Peer(t, leasetest.Options{})
		for range 10 {
			there, err := other.Session(t.Context(), id)
			require.NoError(t, err)
			_, err = there.Renew(t.Context())
			require.NoError(t, err)
			time.Sleep(ttl / 3)
		}
		require.LessOrEqual(t, l.Trust(), time.Duration(0))
		var held *lease.HeldError
		require.ErrorAs(t, reserve(t, kept(t, f), key("1")).Claim(t.Context()), &held)
		require.Equal(t, id, held.Session)
		again, err := f.Session(t.Context(), id)
		require.NoError(t, err)
		require.Positive(t, again.Trust())
		require.NotSame(t, remote, again)
	})
}

// Many callers of a session that this node does not know yet share one view of it.
func TestASessionIsFoundOnce(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		id := newSession(t, f, lease.Spec{TTL: ttl}).Ref().ID
		other := f.Peer(t, leasetest.Options{})
		other.Slow(time.Second)
		found := make(chan lease.Session, 10)
		for range cap(found) {
			go func() {
				s, err := other.Session(t.Context(), id)
				if err != nil {
					t.Error(err)
				}
				found <- s
			}()
		}
		first := <-found
		for range cap(found) - 1 {
			require.Same(t, first, <-found)
		}
		require.Positive(t, first.Trust())
	})
}

// The monotonic clock stands still while the machine is suspended: no timer fires, and yet trust is gone.
func TestHazard27_SuspendedMachineTrustsNothing(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		require.Positive(t, l.Trust())
		f.Suspend(time.Hour)
		require.LessOrEqual(t, l.Trust(), time.Duration(0))
		require.LessOrEqual(t, s.Trust(), time.Duration(0))
	})
}

// A renewal that is answered slowly prolongs trust from the moment when it was sent.
func TestSlowAnswersStretchNothing(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		f.Slow(4 * time.Second)
		trust, err := s.Renew(t.Context())
		require.NoError(t, err)
		require.Equal(t, trustFor, trust, "from the sending")
		require.Equal(t, trustFor-4*time.Second, l.Trust(), "now")
	})
}

func TestHazard07_FrozenHolderFindsNoTrust(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		id := l.Session().ID
		f.Freeze()
		other := f.Peer(t, leasetest.Options{})
		for {
			living, err := other.Living(t.Context(), id)
			require.NoError(t, err)
			if len(living.Sessions) == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, l.Trust(), time.Duration(0), "its end can be proved")
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		heir := claim(t, kept(t, other), key("1"))
		time.Sleep(3 * ttl)
		f.Thaw()
		next := claim(t, s, key("2"))
		require.NotEqual(t, id, next.Session().ID)
		require.LessOrEqual(t, l.Trust(), time.Duration(0))
		require.Positive(t, heir.Trust())
	})
}

// A session without leases that lost its trust is revoked at once, and not renewed any more: nobody waits for its end.
func TestHazard15_ALostSessionThatIsNotInUseEnds(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := reserve(t, s, key("1"))
		id := l.Session().ID
		l.Release()
		f.Partition(leasetest.CutAnswers)
		<-l.Context().Done()
		synctest.Wait()
		require.NotContains(t, f.World.Sessions(), id)
		sent := f.Renewals()
		_, err := s.Renew(t.Context())
		require.ErrorIs(t, err, lease.ErrLost)
		time.Sleep(10 * ttl)
		require.Equal(t, sent, f.Renewals())
		f.Partition(leasetest.CutNothing)
	})
}

// A session that lost its trust with an effect in the air stays in etcd, so that nobody can prove its end, until the lease
// of that effect is released. Nothing new starts under it, although it is renewed.
func TestALostSessionInUseIsKeptForItsLeases(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		idle := kept(t, f)
		idleID := idle.Ref().ID
		l, released, unclaimed := claim(t, s, key("1")), claim(t, s, key("2")), reserve(t, s, key("4"))
		id := l.Session().ID
		f.Partition(leasetest.CutRequests)
		<-l.Context().Done()
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		released.Release()
		f.Partition(leasetest.CutNothing) // before etcd has noticed anything
		next := claim(t, s, key("3"))
		require.NotEqual(t, id, next.Session().ID)
		require.ErrorIs(t, unclaimed.Claim(t.Context()), lease.ErrLost)
		require.ErrorIs(t, unclaimed.Replace(t.Context()), lease.ErrLost)
		unclaimed.Release()
		for range 20 {
			time.Sleep(ttl)
			require.Contains(t, f.World.Sessions(), id)
			require.LessOrEqual(t, l.Trust(), time.Duration(0))
			require.True(t, f.InUse(id))
		}
		require.NotContains(t, f.World.Sessions(), idleID, "one that is not in use was revoked")
		require.Len(t, claims(t, f), 2, "the claim of the released lease is deleted")
		l.Release()
		require.False(t, f.InUse(id))
		synctest.Wait()
		require.NotContains(t, f.World.Sessions(), id, "revoked, not expired")
		sent := f.Renewals()
		time.Sleep(ttl / 3)
		require.LessOrEqual(t, f.Renewals()-sent, 2, "one each for the sessions that are trusted")
	})
}

// Etcd says that a lost session in use is gone: it is not renewed any more, and stays in use for this process.
func TestALostSessionInUseIsGone(t *testing.T) {
	bubble(t, leasetest.Options{Tune: func(c *lease.Config) { c.Pool = -1 }}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		id := l.Session().ID
		f.World.Expire(id)
		<-l.Context().Done()
		sent := f.Renewals()
		time.Sleep(10 * ttl)
		require.Equal(t, sent, f.Renewals())
		require.True(t, f.InUse(id))
		leases, sessions := f.Held()
		require.Equal(t, []int{1, 1}, []int{leases, sessions})
		l.Release()
		require.False(t, f.InUse(id))
		leases, sessions = f.Held()
		require.Equal(t, []int{0, 0}, []int{leases, sessions})
	})
}

// The service is closed while a lost session is in use: it is revoked.
func TestCloseRevokesALostSessionInUse(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		f.Ledger.RaiseEpoch()
		claim(t, s, key("2"))
		require.Contains(t, f.World.Sessions(), l.Session().ID)
		require.NoError(t, f.Close(t.Context()))
		require.Empty(t, f.World.Sessions())
		l.Release()
	})
}

// A session that comes back to life with a backup is not trusted by who lost it.
func TestHazard21_ALostSessionIsNotTrustedAgain(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := kept(t, f)
		l := claim(t, s, key("1"))
		f.Partition(leasetest.CutRequests)
		<-l.Context().Done()
		f.Partition(leasetest.CutNothing) // before etcd noticed anything: the session still lives there
		next := reserve(t, s, key("1"))
		require.NotEqual(t, l.Session().ID, next.Session().ID)
		require.Greater(t, next.Session().Revision, l.Session().Revision)
		time.Sleep(ttl)
		require.LessOrEqual(t, l.Trust(), time.Duration(0))
	})
}

// EndSession, while other requests find the same session again: nobody here trusts it afterwards.
func TestEndSessionAgainstFindingIt(t *testing.T) {
	bubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		id := newSession(t, f, lease.Spec{TTL: ttl}).Ref().ID
		other := f.Peer(t, leasetest.Options{})
		require.NoError(t, other.Ready(t.Context()))
		other.Slow(time.Second)
		ended := make(chan error, 1)
		go func() { ended <- other.EndSession(t.Context(), id) }() // it has read the marker, and revokes in a second
		time.Sleep(100 * time.Millisecond)
		other.Slow(0)
		found, err := other.Session(t.Context(), id)
		require.NoError(t, err)
		require.Positive(t, found.Trust())
		require.NoError(t, <-ended)
		require.LessOrEqual(t, found.Trust(), time.Duration(0))
		_, err = other.Session(t.Context(), id)
		require.ErrorIs(t, err, lease.ErrLost)
	})
}
