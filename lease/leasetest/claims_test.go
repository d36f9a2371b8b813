package leasetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// Claims that are queued while a batch is in flight are committed together.
func TestClaimsAreCommittedInGroups(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		synctest.Wait()
		f.Freeze()
		const callers = 300
		before := f.Commits()
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				l, err := s.Reserve(t.Context(), key(fmt.Sprint(i)), leasetest.NewNonce())
				if assert.NoError(t, err) {
					assert.NoError(t, l.Claim(t.Context()))
				}
			})
		}
		synctest.Wait()
		f.Thaw()
		all.Wait()
		require.LessOrEqual(t, f.Commits()-before, 8)
	})
}

// A release shares a transaction with a claim that follows at once, so that it does not delay the claim. A release
// without a following operation is committed after coalesceDelay.
func TestReleaseWaitsForAClaim(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		first := claim(t, s, key("1"))
		before := f.Commits()
		first.Release()
		second := claim(t, s, key("2"))
		require.Equal(t, before+1, f.Commits(), "the release and the claim in one transaction")
		require.Len(t, claims(t, f), 1)

		second.Release()
		synctest.Wait()
		require.Equal(t, before+1, f.Commits(), "sent before coalesceDelay")
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, before+2, f.Commits(), "sent alone")
		require.Empty(t, claims(t, f))
	})
}

func TestClaimWhoseAnswerWasLostIsAskedAgain(t *testing.T) {
	for _, lost := range []int{1, 3} {
		inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
			s := localSession(t, f)
			revision := f.Etcd.Revision()
			f.LoseAnswers(lost)
			l := claim(t, s, key("1"))
			require.Equal(t, revision+1, f.Etcd.Revision(), "written once")
			require.Equal(t, l.Session().ID, claims(t, f)[0].Session)

			f.LoseAnswers(lost)
			require.NoError(t, l.Replace(t.Context()))
			f.LoseAnswers(lost)
			l.Release()
			claim(t, s, key("1")) // after the release, whose answer is lost, too
		})
	}
}

// A rejected claim whose answer was lost is sent again and rejected.
func TestLostAnswerOfARefusedClaim(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s, foreign := localSession(t, f), f.ClaimFromOtherNode(t, key("1"), "b:1")
		f.LoseAnswers(1)
		l := reserve(t, s, key("1"))
		var held *lease.HeldError
		require.ErrorAs(t, l.Claim(t.Context()), &held)
		require.Equal(t, foreign.Session().ID, held.Session)
		l.Release()
		time.Sleep(time.Minute)
		require.Len(t, claims(t, f), 1)
		require.Positive(t, foreign.Trust())
	})
}

// A release during the claim's request is committed after the claim, which leaves no claim in etcd.
func TestReleaseOfAnUnansweredClaim(t *testing.T) {
	for name, fault := range map[string]func(f *leasetest.Fake) (heal func()){
		"frozen":      func(f *leasetest.Fake) func() { f.Freeze(); return f.Thaw },
		"slow":        func(f *leasetest.Fake) func() { f.SlowAnswers(time.Second); return func() { f.SlowAnswers(0) } },
		"answer lost": func(f *leasetest.Fake) func() { f.LoseAnswers(1); return func() {} },
		"cut":         func(f *leasetest.Fake) func() { f.Partition(leasetest.CutAnswers); return func() { f.Partition(0) } },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
				s := localSession(t, f)
				l := reserve(t, s, key("1"))
				synctest.Wait()
				heal := fault(f)
				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan error, 1)
				go func() { left <- l.Claim(ctx) }()
				synctest.Wait()
				l.Release()
				cancel()
				require.Error(t, <-left)
				time.Sleep(100 * time.Millisecond)
				heal()
				time.Sleep(10 * time.Second)
				require.Empty(t, claims(t, f))
				require.Positive(t, l.Trust(), "the session goes on")
			})
		})
	}
}

// A claim that is still queued when it is released is not sent at all.
func TestReleaseOfAQueuedClaim(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		synctest.Wait()
		f.Freeze()
		first := reserve(t, s, key("1"))
		go func() { assert.NoError(t, first.Claim(t.Context())) }() // in flight
		synctest.Wait()
		l := reserve(t, s, key("2"))
		left := make(chan error, 1)
		go func() { left <- l.Claim(t.Context()) }() // queued after it
		synctest.Wait()
		l.Release()
		before := f.Commits()
		f.Thaw()
		require.ErrorIs(t, <-left, lease.ErrReleased)
		time.Sleep(time.Second)
		require.Equal(t, before, f.Commits())
		require.Len(t, claims(t, f), 1)
	})
}

// While etcd does not answer, Claim retries until its context or trust ends. The error has the cause of the context.
func TestClaimWithoutEtcd(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := reserve(t, s, key("1"))
		f.Partition(leasetest.CutRequests)
		err := l.Claim(withTimeout(t, 7*time.Second))
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began := time.Now()
		require.ErrorIs(t, l.Claim(t.Context()), lease.ErrLost, "retried until trust ends")
		require.Less(t, time.Since(began), ttl)
		l.Release()
	})
}

// A claim that is written long after its caller gave up is harmless: the caller that may act replaces it, and its
// release does not delete the replacement.
func TestClaimThatArrivesLate(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		late := reserve(t, s, key("1"))
		f.DelayCommits()
		require.ErrorIs(t, late.Claim(withTimeout(t, time.Second)), lease.ErrUnavailable)
		heir := reserve(t, localSession(t, f.Peer(t, leasetest.Options{})), key("1"))
		require.NoError(t, heir.Claim(t.Context()))
		heir.Release()
		time.Sleep(time.Second)
		f.CommitDelayed()
		require.Equal(t, late.Session().ID, claims(t, f)[0].Session)
		again := reserve(t, s, key("1"))
		require.ErrorIs(t, again.Claim(t.Context()), lease.ErrHeld)
		require.NoError(t, again.Replace(t.Context()))
		late.Release()
		time.Sleep(10 * time.Second)
		require.Equal(t, again.Session().ID, claims(t, f)[0].Session)
		require.Len(t, claims(t, f), 1)
	})
}

func TestReleaseIsTriedUntilEtcdAnswers(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		l := claim(t, s, key("1"))
		other := newSession(t, f, lease.Spec{TTL: ttl})
		nonce := leasetest.NewNonce()
		m, err := other.Reserve(t.Context(), key("2"), nonce)
		require.NoError(t, err)
		require.NoError(t, m.Claim(t.Context()))
		f.Partition(leasetest.CutRequests)
		l.Release()
		f.ReleaseClaim(key("2"), m.Session().ID, nonce)
		time.Sleep(7 * time.Second) // the first requests time out
		f.Partition(leasetest.CutNothing)
		time.Sleep(7 * time.Second)
		require.Empty(t, claims(t, f))
	})
}

// A claim with a damaged value still holds its key, is listed, and can be removed. Other claims are not affected.
func TestAClaimThatCannotBeReadIsHeld(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		peer := f.Peer(t, leasetest.Options{})
		other := localSession(t, peer)
		size := 1 + 4 + 16 + len(s.Ref().ID)
		for at := range size {
			k := key(fmt.Sprint(at))
			l := claim(t, s, k)
			f.Etcd.CorruptClaim(k, at)
			require.ErrorIs(t, reserve(t, other, k).Claim(t.Context()), lease.ErrHeld, "byte %d", at)
			all := claims(t, peer)
			require.Len(t, all, 1)
			require.Equal(t, k, all[0].Key)
			l.Release()
			time.Sleep(time.Second)
			require.Len(t, claims(t, peer), 1, "its release must not delete the damaged value")
			require.NoError(t, peer.RemoveClaims(t.Context(), all))
			claim(t, other, k).Release()
			time.Sleep(time.Second)
		}
	})
}

func TestCloseWaitsForReleases(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		l := claim(t, newSession(t, f, lease.Spec{TTL: ttl, Owner: "remote"}), key("1"))
		f.Freeze()
		l.Release()
		closed := make(chan error, 1)
		go func() { closed <- f.Close(context.Background()) }()
		time.Sleep(time.Second)
		require.Empty(t, closed, "closed before the release was done")
		f.Thaw()
		require.NoError(t, <-closed)
		require.Empty(t, claims(t, f.Peer(t, leasetest.Options{})))
	})
}
