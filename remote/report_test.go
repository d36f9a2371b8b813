package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A ledger that was put back from before an attempt does not know its flight. Its report is kept as evidence where it brings its
// key; else this node must say that it is kept nowhere.
func TestHazard22_AReportToALedgerFromBefore(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		before := flightdtest.New(t)
		word := reportOf(a, flight.Succeeded, "ch_1")
		word.Key = flight.Key{}
		_, err := before.Remote().Report(t.Context(), word)
		require.Equal(t, a.Flight.ID, requireAs[*effect.Missing](t, err).ID)
		word.Key = keyOf("2")
		_, err = before.Remote().Report(t.Context(), word)
		require.Equal(t, "key", requireAs[*flight.InvalidError](t, err).Field)
		word.Key = a.Flight.Key
		f, err := before.Remote().Report(t.Context(), word)
		requireAs[*effect.Fenced](t, err)
		require.Len(t, f.Evidence, 1)
		require.Greater(t, proceed(t, before, openOf("1", `{}`, flight.Policy{}, 2)).Flight.AttemptNumber(), a.Flight.AttemptNumber(), "numbers go on")
	})
}

// A report at a node that does not know the flight yet is proposed, where it brings its key.
func TestHazard29_AReportAtANodeThatKnowsNothing(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		a.stopReading()
		acts := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		require.Equal(t, flight.StateSucceeded, report(t, here, acts, flight.Succeeded, "ch_1").State)
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.World.Sessions(), acts.Session)
	})
}

// A session that was taken for an open that was answered busy is withdrawn, and then ended: busy alone does not end it, and a
// copy of the open that comes later opens nothing.
func TestOneShotSessionAfterBusy(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 2)
		a.stopReading() // so that it proposes
		acts := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		var copied *flight.Open
		a.before = func(c flight.Command) {
			if o, is := c.(*flight.Open); is {
				copied = o
			}
			if w, is := c.(*flight.Withdraw); is {
				require.Equal(t, copied.Session.ID, w.Session)
				require.Contains(t, there.Leases.World.Sessions(), w.Session, "not ended before")
			}
		}
		_, err := here.Remote().Open(t.Context(), req)
		require.True(t, requireAs[*effect.Busy](t, err).Proposed)
		released(t)
		require.NotContains(t, there.Leases.World.Sessions(), copied.Session.ID)
		require.Contains(t, there.Leases.World.Sessions(), acts.Session)
		report(t, here, acts, flight.NotDone, "")
		released(t)
		require.NotContains(t, there.Leases.World.Sessions(), acts.Session, "it ends with its report, at whichever node")
		reply, err := there.Ledger.Propose(t.Context(), copied)
		require.NoError(t, err)
		require.Equal(t, flight.SessionEnded, reply.Decision)
	})
}

// Busy is no proof: where a copy of the Open has opened an attempt meanwhile, its session stays.
func TestOneShotSessionOfACopyThatOpened(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 2)
		a.stopReading()
		first := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		var copied *flight.Open
		a.before = func(c flight.Command) {
			switch c := c.(type) {
			case *flight.Open:
				copied = c
			case *flight.Withdraw:
				report(t, there, first, flight.NotDone, "")
				reply, err := there.Ledger.Propose(t.Context(), copied)
				require.NoError(t, err)
				require.Equal(t, flight.Proceed, reply.Decision)
			}
		}
		_, err := here.Remote().Open(t.Context(), req)
		require.True(t, requireAs[*effect.Busy](t, err).Proposed)
		released(t)
		require.Contains(t, there.Leases.World.Sessions(), copied.Session.ID)
		acts := proceed(t, there, req) // its caller repeats, as it must
		require.Equal(t, copied.Session.ID, acts.Session)
		report(t, there, acts, flight.Succeeded, "ch_1")
		released(t)
		require.NotContains(t, there.Leases.World.Sessions(), copied.Session.ID)
	})
}

// A session for one open lives until its report is committed: a report that is only kept, or was not answered, ends nothing.
func TestOneShotSessionUntilTheReportIsCommitted(t *testing.T) {
	twoNodes(t, func(t *testing.T, a *access, here, there *flightdtest.Flightd) {
		acts := proceed(t, here, openOf("1", `{}`, flight.Policy{}, 1))
		a.set(accessStuck)
		_, err := here.Remote().Report(t.Context(), reportOf(acts, flight.Succeeded, "ch_1"))
		require.Equal(t, "report_pending", requireAs[*effect.Unavailable](t, err).Code)
		released(t)
		require.Contains(t, there.Leases.World.Sessions(), acts.Session)
		require.Equal(t, 1, claimsOf(t, there))
		there.Ledger.Before(func(c flight.Command) {
			if _, is := c.(*flight.Report); is {
				require.Contains(t, there.Leases.World.Sessions(), acts.Session)
			}
		})
		report(t, there, acts, flight.Succeeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.World.Sessions(), acts.Session)
	})
}
