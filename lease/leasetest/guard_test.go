package leasetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// raiseAndRecord raises the counter of the guard key and records it, as the ledger's leader does.
func raiseAndRecord(t *testing.T, f *leasetest.Fake) uint64 {
	t.Helper()
	_, counter, err := f.RaiseGuard(t.Context())
	require.NoError(t, err)
	f.Ledger.Record(counter)
	return counter
}

// A restored etcd remains rejected when its counter later exceeds the recorded one.
func TestHazard20_RefusalLastsThoughTheCounterCatchesUp(t *testing.T) {
	refused := make(chan error, 10)
	events := lease.Events{EtcdRefused: func(err error) { refused <- err }}
	inBubble(t, leasetest.Options{Events: events}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		f.Ledger.Record(10)
		time.Sleep(5 * time.Second) // maintenance detects it without a request
		require.ErrorIs(t, <-refused, lease.ErrRegressed)
		f.Etcd.SetCounter(100)
		time.Sleep(time.Hour)
		_, err := s.Reserve(t.Context(), key("1"), leasetest.NewNonce())
		require.ErrorIs(t, err, lease.ErrRegressed)
		_, err = f.Living(t.Context())
		require.ErrorIs(t, err, lease.ErrRegressed)
		f.Ledger.RaiseEpoch()
		claim(t, s, key("1"))
		require.NoError(t, <-refused)
		require.Empty(t, refused)
	})
}

// A counter that the ledger records between a request and its answer is not a regression.
func TestACounterRecordedMeanwhileIsNoRegression(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		localSession(t, f)
		peer := f.Peer(t, leasetest.Options{})
		f.SlowAnswers(time.Second)
		done := make(chan error, 1)
		go func() { _, err := f.Living(t.Context()); done <- err }()
		time.Sleep(500 * time.Millisecond)
		raiseAndRecord(t, peer)
		require.NoError(t, <-done)
		f.SlowAnswers(0)
	})
}

// A prefix with a foreign guard key is accepted again after the guard key was corrected.
func TestForeignPrefixIsSetRight(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		l := claim(t, localSession(t, f), key("1"))
		f.Etcd.SetGuardKey(&lease.Ownership{Deployment: "another", Epoch: 7})
		<-l.Context().Done()
		_, err := f.Living(t.Context())
		require.ErrorIs(t, err, lease.ErrForeign)
		f.Etcd.SetGuardKey(&lease.Ownership{Deployment: leasetest.Deployment, Epoch: 1})
		time.Sleep(5 * time.Second)
		claim(t, localSession(t, f), key("2"))
	})
}

// The guard key changes while a claim is in flight. The claim is not written with the wrong guard key, and is retried
// until the guard key is right.
func TestClaimWhileTheGuardKeyChanges(t *testing.T) {
	inBubble(t, leasetest.Options{}, func(t *testing.T, f *leasetest.Fake) {
		s := localSession(t, f)
		synctest.Wait()
		f.Etcd.SetGuardKey(&lease.Ownership{Deployment: leasetest.Deployment, Epoch: 2}) // another node has raised the epoch
		l := reserve(t, s, key("1"))
		claimed := make(chan error, 1)
		go func() { claimed <- l.Claim(t.Context()) }()
		time.Sleep(time.Second)
		require.Empty(t, claimed)
		f.Etcd.SetGuardKey(&lease.Ownership{Deployment: leasetest.Deployment, Epoch: 1})
		require.NoError(t, <-claimed)
	})
}

// Attempts of remote sessions end with ReleaseClaim, also repeated: the claims that are left are lost with the session, and no others.
func TestReleasedClaimsAreNotLostWithTheirSession(t *testing.T) {
	ended := make(chan int, 1)
	events := lease.Events{SessionEnded: func(_ flight.SessionID, _ error, leases int) { ended <- leases }}
	inBubble(t, leasetest.Options{Events: events, Tune: func(c *lease.Config) { c.Pool = -1 }}, func(t *testing.T, f *leasetest.Fake) {
		s := newSession(t, f, lease.Spec{TTL: ttl})
		claim(t, s, key("lost"))
		claim(t, s, key("released")).Release()
		nonce := leasetest.NewNonce()
		l, err := s.Reserve(t.Context(), key("reported"), nonce)
		require.NoError(t, err)
		require.NoError(t, l.Claim(t.Context()))
		f.ReleaseClaim(key("reported"), s.Ref().ID, nonce)
		f.ReleaseClaim(key("reported"), s.Ref().ID, nonce)
		f.ReleaseClaim(key("elsewhere"), s.Ref().ID, leasetest.NewNonce())
		time.Sleep(ttl / 3) // the claims are deleted
		require.Len(t, claims(t, f), 1)
		f.Etcd.Expire(s.Ref().ID)
		time.Sleep(ttl)
		require.Equal(t, 1, <-ended)
	})
}

// Each loss has a reason, and open leases and sessions are counted.
func TestLossesHaveAReason(t *testing.T) {
	type end struct {
		reason string
		leases int
	}
	for want, lose := range map[string]func(f *leasetest.Fake, id flight.SessionID){
		lease.LostExpired:   func(f *leasetest.Fake, _ flight.SessionID) { f.Freeze() },
		lease.LostRevoked:   func(f *leasetest.Fake, id flight.SessionID) { f.Etcd.Expire(id) },
		lease.LostEpoch:     func(f *leasetest.Fake, _ flight.SessionID) { f.Ledger.RaiseEpoch() },
		lease.LostRegressed: func(f *leasetest.Fake, _ flight.SessionID) { f.Ledger.Record(9) },
		lease.LostForeign:   func(f *leasetest.Fake, _ flight.SessionID) { f.Etcd.SetGuardKey(&lease.Ownership{Deployment: "x"}) },
	} {
		t.Run(want, func(t *testing.T) {
			ended := make(chan end, 10)
			events := lease.Events{SessionEnded: func(_ flight.SessionID, cause error, leases int) { ended <- end{lease.LostReason(cause), leases} }}
			inBubble(t, leasetest.Options{Events: events, Tune: func(c *lease.Config) { c.Pool = -1 }}, func(t *testing.T, f *leasetest.Fake) {
				s := localSession(t, f)
				id := s.Ref().ID
				l := claim(t, s, key("1"))
				claim(t, s, key("2")).Release()
				leases, sessions := f.Counts()
				require.Equal(t, []int{1, 1}, []int{leases, sessions})
				lose(f, id)
				time.Sleep(ttl)
				f.Thaw()
				require.Equal(t, end{want, 1}, <-ended)
				l.Release()
			})
			close(ended)
			for last := range ended {
				require.Empty(t, last.reason, "a closed session is not lost")
			}
		})
	}
}
