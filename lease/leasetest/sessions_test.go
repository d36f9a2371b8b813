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

// A session with very many leases spreads them over several etcd leases. Released capacity is used again.
func TestHazard18_LeasesAreSpread(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
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
		require.Len(t, f.Etcd.Sessions(), 2)
	})
}

// Every call returns after a lost answer, even with a context that never ends.
func TestLostAnswersAreNotWaitedFor(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
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
			"NewSession": func() error { _, err := f.NewSession(ctx, lease.Spec{AutoRenew: true}); return err },
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

// A trusted session reserves leases without a request to etcd.
func TestReserveMakesNoCall(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, remote := localSession(t, f), newSession(t, f, lease.Spec{TTL: ttl})
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
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		spec := lease.Spec{TTL: ttl, OneShot: true}
		newSession(t, f, spec) // fills the pool
		time.Sleep(10 * ttl)   // the pool is renewed
		before := f.Etcd.Revision()
		s := newSession(t, f, spec)
		require.Equal(t, before, f.Etcd.Revision())
		sessionKey := f.Etcd.SessionKey(s.Ref().ID)
		require.NotNil(t, sessionKey)
		require.Equal(t, s.Ref(), sessionKey.Session)
		require.True(t, sessionKey.Session.OneShot)
		l := claim(t, s, key("1"))
		require.Equal(t, before+1, f.Etcd.Revision())
		require.Greater(t, l.Trust(), ttl/3)
	})
}

// Pooled sessions of an older lease epoch are not returned.
func TestPoolForgetsAnOlderEpoch(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		spec := lease.Spec{TTL: ttl, OneShot: true}
		newSession(t, f, spec)
		synctest.Wait()
		f.Ledger.RaiseEpoch()
		for range 20 {
			require.EqualValues(t, 2, newSession(t, f, spec).Ref().Epoch)
		}
	})
}

// Concurrent callers that find the same session in etcd get the same Session.
func TestASessionIsFoundOnce(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		id := newSession(t, f, lease.Spec{TTL: ttl}).Ref().ID
		other := f.Peer(t, leasetest.Options{})
		other.SlowAnswers(time.Second)
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

// The monotonic clock stops while the machine is suspended, so no timer fires; trust ends nevertheless.
func TestHazard27_SuspendedMachineTrustsNothing(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := claim(t, s, key("1"))
		require.Positive(t, l.Trust())
		f.Suspend(time.Hour)
		require.LessOrEqual(t, l.Trust(), time.Duration(0))
		require.LessOrEqual(t, s.Trust(), time.Duration(0))
	})
}

// Trust counts from the moment when the renewal was sent, also after a slow answer.
func TestSlowAnswersStretchNothing(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := claim(t, s, key("1"))
		f.SlowAnswers(4 * time.Second)
		trust, err := s.Renew(t.Context())
		require.NoError(t, err)
		require.Equal(t, trustFor, trust, "counted from the request")
		require.Equal(t, trustFor-4*time.Second, l.Trust(), "now")
	})
}

// A lost session with an unreleased lease is renewed until that lease is released, so that no node can prove its end
// while the effect may be running. No new lease starts under it.
func TestHazard15_ALostSessionInUseIsKeptForItsLeases(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		idle := localSession(t, f)
		idleID := idle.Ref().ID
		l, released, unclaimed := claim(t, s, key("1")), claim(t, s, key("2")), reserve(t, s, key("4"))
		id := l.Session().ID
		f.Partition(leasetest.CutRequests)
		<-l.Context().Done()
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
		released.Release()
		f.Partition(leasetest.CutNothing) // before the lease expires in etcd
		next := claim(t, s, key("3"))
		require.NotEqual(t, id, next.Session().ID)
		require.ErrorIs(t, unclaimed.Claim(t.Context()), lease.ErrLost)
		require.ErrorIs(t, unclaimed.Replace(t.Context()), lease.ErrLost)
		unclaimed.Release()
		for range 20 {
			time.Sleep(ttl)
			require.Contains(t, f.Etcd.Sessions(), id)
			require.LessOrEqual(t, l.Trust(), time.Duration(0))
			require.True(t, f.InUse(id))
		}
		require.NotContains(t, f.Etcd.Sessions(), idleID, "a lost session without leases was revoked")
		require.Len(t, claims(t, f), 2, "the claim of the released lease is deleted")
		l.Release()
		require.False(t, f.InUse(id))
		synctest.Wait()
		require.NotContains(t, f.Etcd.Sessions(), id, "revoked, not expired")
		sent := f.Renewals()
		time.Sleep(ttl / 3)
		require.LessOrEqual(t, f.Renewals()-sent, 2, "one for each trusted session")
	})
}

// A lost session in use that expires in etcd is not renewed any more, and remains in use for this process.
func TestALostSessionInUseIsGone(t *testing.T) {
	inBubble(t, leasetest.Options{Tune: func(c *lease.Config) { c.Pool = -1 }}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := claim(t, s, key("1"))
		id := l.Session().ID
		f.Etcd.Expire(id)
		<-l.Context().Done()
		sent := f.Renewals()
		time.Sleep(10 * ttl)
		require.Equal(t, sent, f.Renewals())
		require.True(t, f.InUse(id))
		leases, sessions := f.Counts()
		require.Equal(t, []int{1, 1}, []int{leases, sessions})
		l.Release()
		require.False(t, f.InUse(id))
		leases, sessions = f.Counts()
		require.Equal(t, []int{0, 0}, []int{leases, sessions})
	})
}

// Close revokes a lost session in use.
func TestCloseRevokesALostSessionInUse(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := claim(t, s, key("1"))
		f.Ledger.RaiseEpoch()
		claim(t, s, key("2"))
		require.Contains(t, f.Etcd.Sessions(), l.Session().ID)
		require.NoError(t, f.Close(t.Context()))
		require.Empty(t, f.Etcd.Sessions())
		l.Release()
	})
}

// After EndSession the session is not trusted here, although concurrent requests have found it again.
func TestEndSessionAgainstFindingIt(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		id := newSession(t, f, lease.Spec{TTL: ttl}).Ref().ID
		other := f.Peer(t, leasetest.Options{})
		require.NoError(t, other.Ready(t.Context()))
		other.SlowAnswers(time.Second)
		ended := make(chan error, 1)
		go func() { ended <- other.EndSession(t.Context(), id) }() // reads the session key, and revokes a second later
		time.Sleep(100 * time.Millisecond)
		other.SlowAnswers(0)
		found, err := other.Session(t.Context(), id)
		require.NoError(t, err)
		require.Positive(t, found.Trust())
		require.NoError(t, <-ended)
		require.LessOrEqual(t, found.Trust(), time.Duration(0))
		_, err = other.Session(t.Context(), id)
		require.ErrorIs(t, err, lease.ErrLost)
	})
}
