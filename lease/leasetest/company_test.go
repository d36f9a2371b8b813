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

// A release must not stand in the way of the claim that comes right behind it: the two share a write. One that nothing
// follows goes out by itself soon.
func TestReleaseWaitsForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := leasetest.New(t, leasetest.Options{})
		session, err := fake.NewSession(t.Context(), lease.Spec{Owner: "test", Kept: true})
		require.NoError(t, err)
		first, err := session.TryAcquire(t.Context(), flight.MustKey("billing/charge/1"))
		require.NoError(t, err)
		before := fake.Commits()
		first.Release()
		second, err := session.TryAcquire(t.Context(), flight.MustKey("billing/charge/2"))
		require.NoError(t, err)
		require.Equal(t, before+1, fake.Commits(), "the release and the claim in one write")
		claims, err := fake.Claims(t.Context())
		require.NoError(t, err)
		require.Len(t, claims, 1)

		second.Release()
		synctest.Wait()
		require.Equal(t, before+1, fake.Commits(), "nobody waits for it yet")
		timer := time.NewTimer(5 * time.Millisecond)
		<-timer.C
		synctest.Wait()
		require.Equal(t, before+2, fake.Commits(), "it goes out by itself")
	})
}
