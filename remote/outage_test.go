package remote_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
	"github.com/flightd/flightd/remote"
)

// The ledger is down: nothing was proposed, or the answer is ambiguous. A repeat with the same nonce continues.
func TestWithTheLedgerAway(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		fd.Ledger.Cut()
		_, err := fd.Remote().Open(t.Context(), openOf("2", `{}`, flight.Policy{}, 1))
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = fd.Remote().Report(ctx, reportOf(a, flight.OutcomeSucceeded, "ch_1"))
		require.Equal(t, "report_pending", requireAs[*effect.Unavailable](t, err).Code)
		fd.Ledger.Heal()
		require.Equal(t, flight.StateSucceeded, report(t, fd, a, flight.OutcomeSucceeded, "ch_1").State)

		b := openOf("3", `{}`, flight.Policy{}, 1)
		b.Session = session(t, fd)
		fd.Ledger.Stall()
		began := time.Now()
		_, err = fd.Remote().Open(t.Context(), b)
		require.Equal(t, "no_leader", requireAs[*effect.Unavailable](t, err).Code)
		require.LessOrEqual(t, time.Since(began), 7500*time.Millisecond)
		fd.Ledger.Heal()
		require.NotNil(t, fd.Flight(b.Key).OpenAttempt(), "it arrived")
		proceed(t, fd, b)
		require.EqualValues(t, 1, fd.Flight(b.Key).AttemptCount)
	})
}

// etcd does not answer for half a TTL: the caller gets lease_unavailable, and nothing is abandoned. Its repeat gets the
// same attempt.
func TestHazard14_EtcdIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("0", `{}`, flight.Policy{}, 1))
		s := sessionOf(t, fd, time.Minute)
		synctest.Wait()                                // the pool is full
		for _, id := range []flight.SessionID{"", s} { // the first session is from the pool, before the pool is lost, too
			req := openOf("of-"+string(id), `{}`, flight.Policy{}, 1)
			req.Session = id
			fd.Leases.Partition(leasetest.CutRequests)
			began := time.Now()
			_, err := fd.Remote().Open(t.Context(), req)
			require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
			require.LessOrEqual(t, time.Since(began), 7500*time.Millisecond)
			require.NotNil(t, fd.Flight(req.Key).OpenAttempt(), "the ledger has opened it")
			if id != "" {
				_, err = fd.Remote().Open(t.Context(), req)
				require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code, "a repeat needs etcd, too")
			}
			fd.Leases.Partition(leasetest.CutNothing)
			opened := fd.Flight(req.Key)
			require.NotNil(t, opened.OpenAttempt(), "the attempt is not abandoned")
			again := proceed(t, fd, req)
			require.Equal(t, opened.Version, again.Flight.Version)
			report(t, fd, again, flight.OutcomeSucceeded, "ch_1")
			_, err = fd.Remote().Renew(t.Context(), s, remote.RenewRequest{})
			require.NoError(t, err)
		}
		fd.Leases.Partition(leasetest.CutRequests)
		_, err := fd.Remote().NewSession(t.Context(), 0, "x")
		require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
		_, err = fd.Remote().Renew(t.Context(), s, remote.RenewRequest{})
		require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
		_, err = fd.Remote().Report(t.Context(), reportOf(a, flight.OutcomeSucceeded, "ch_1"))
		require.NoError(t, err, "a report needs only the token")
		again, err := fd.Remote().Open(t.Context(), openOf("0", `{}`, flight.Policy{}, 3))
		require.NoError(t, err)
		require.Equal(t, flight.DecisionReplay, again.Decision)
	})
}
