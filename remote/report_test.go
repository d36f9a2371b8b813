package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A ledger restored from before an attempt does not know the flight. A report of success with its key becomes the receipt;
// a report without its key gets an error, because it is not stored.
func TestHazard22_AReportToALedgerFromBefore(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		a := proceed(t, fd, openOf("1", `{}`, flight.Policy{}, 1))
		before := flightdtest.New(t)
		word := reportOf(a, flight.OutcomeSucceeded, "ch_1")
		word.Key = flight.Key{}
		_, err := before.Remote().Report(t.Context(), word)
		require.Equal(t, a.Flight.ID, requireAs[*effect.Missing](t, err).ID)
		word.Key = keyOf("2")
		_, err = before.Remote().Report(t.Context(), word)
		require.Equal(t, "key", requireAs[*flight.InvalidError](t, err).Field)
		word.Key = a.Flight.Key
		f, err := before.Remote().Report(t.Context(), word)
		require.NoError(t, err)
		require.Equal(t, flight.SourceReportAfterRestore, f.Receipt.Source)

		word.Outcome, word.ExternalID, word.Body = flight.OutcomeNotDone, "", flight.Blob{}
		before = flightdtest.New(t)
		f, err = before.Remote().Report(t.Context(), word)
		requireAs[*effect.Fenced](t, err)
		require.Len(t, f.Evidence, 1)
		require.Greater(t, proceed(t, before, openOf("1", `{}`, flight.Policy{}, 2)).Flight.AttemptNumber(), a.Flight.AttemptNumber(), "attempt numbers continue")
	})
}

// A report with its key is proposed even at a node that does not know the flight yet.
func TestHazard29_AReportAtANodeThatKnowsNothing(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		a.stopReading()
		acts := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		require.Equal(t, flight.StateSucceeded, report(t, here, acts, flight.OutcomeSucceeded, "ch_1").State)
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.Etcd.Sessions(), acts.Session)
	})
}

// The one-shot session of an open that was answered busy is withdrawn, then ended. Busy alone does not end it, and a
// later copy of the Open opens nothing.
func TestOneShotSessionAfterBusy(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 2)
		a.stopReading() // the stale view makes the node propose
		acts := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		var copied *flight.Open
		a.beforePropose = func(c flight.Command) {
			if o, is := c.(*flight.Open); is {
				copied = o
			}
			if w, is := c.(*flight.WithdrawSession); is {
				require.Equal(t, copied.Session.ID, w.Session)
				require.Contains(t, there.Leases.Etcd.Sessions(), w.Session, "the session is not ended before")
			}
		}
		_, err := here.Remote().Open(t.Context(), req)
		require.True(t, requireAs[*effect.Busy](t, err).Proposed, "the answer says so")
		require.Equal(t, 1, claimsOf(t, there), "the first opener's claim")
		require.NotContains(t, there.Leases.Etcd.Sessions(), copied.Session.ID)
		require.Contains(t, there.Leases.Etcd.Sessions(), acts.Session)
		report(t, here, acts, flight.OutcomeNotDone, "")
		waitForReleases(t)
		require.NotContains(t, there.Leases.Etcd.Sessions(), acts.Session, "the session ends with its report at any node")
		reply, err := there.Ledger.Propose(t.Context(), copied)
		require.NoError(t, err)
		require.Equal(t, flight.DecisionSessionEnded, reply.Decision)
	})
}

// Busy is no proof: if a copy of the Open has opened an attempt meanwhile, its session is not ended.
func TestOneShotSessionOfACopyThatOpened(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		req := openOf("1", `{}`, flight.Policy{}, 2)
		a.stopReading()
		first := proceed(t, there, openOf("1", `{}`, flight.Policy{}, 1))
		var copied *flight.Open
		a.beforePropose = func(c flight.Command) {
			switch c := c.(type) {
			case *flight.Open:
				copied = c
			case *flight.WithdrawSession:
				report(t, there, first, flight.OutcomeNotDone, "")
				reply, err := there.Ledger.Propose(t.Context(), copied)
				require.NoError(t, err)
				require.Equal(t, flight.DecisionProceed, reply.Decision)
			}
		}
		_, err := here.Remote().Open(t.Context(), req)
		require.True(t, requireAs[*effect.Busy](t, err).Proposed)
		waitForReleases(t)
		require.Contains(t, there.Leases.Etcd.Sessions(), copied.Session.ID)
		acts := proceed(t, there, req) // the caller repeats, as the protocol requires
		require.Equal(t, copied.Session.ID, acts.Session)
		report(t, there, acts, flight.OutcomeSucceeded, "ch_1")
		waitForReleases(t)
		require.NotContains(t, there.Leases.Etcd.Sessions(), copied.Session.ID)
	})
}

// A one-shot session lives until its report is committed: a report that is only spooled, or unanswered, does not end
// it.
func TestOneShotSessionUntilTheReportIsCommitted(t *testing.T) {
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, here, there *flightdtest.Flightd) {
		acts := proceed(t, here, openOf("1", `{}`, flight.Policy{}, 1))
		a.set(faultHoldCommands)
		_, err := here.Remote().Report(t.Context(), reportOf(acts, flight.OutcomeSucceeded, "ch_1"))
		require.Equal(t, "report_pending", requireAs[*effect.Unavailable](t, err).Code)
		waitForReleases(t)
		require.Contains(t, there.Leases.Etcd.Sessions(), acts.Session)
		require.Equal(t, 1, claimsOf(t, there))
		there.Ledger.Before(func(c flight.Command) {
			if _, is := c.(*flight.Report); is {
				require.Contains(t, there.Leases.Etcd.Sessions(), acts.Session)
			}
		})
		report(t, there, acts, flight.OutcomeSucceeded, "ch_1")
		require.Zero(t, claimsOf(t, there))
		require.NotContains(t, there.Leases.Etcd.Sessions(), acts.Session)
	})
}

// Two copies of a report that a node could not store at once may wait in two spools. The caller who sends the second one behind a new attempt
// must be told so: an answer that shows another attempt is no answer to its report, and it would send it for ever.
func TestSecondCopyBehindANewAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		first := proceed(t, fd, openOf("1", "{}", flight.Policy{Recovery: flight.RecoveryResend}, 1))
		report(t, fd, first, flight.OutcomeUnknown, "")
		report(t, fd, first, flight.OutcomeUnknown, "") // its attempt is the newest one: the flight shows it
		second := proceed(t, fd, openOf("1", "{}", flight.Policy{Recovery: flight.RecoveryResend}, 2))
		f, err := fd.Remote().Report(t.Context(), reportOf(first, flight.OutcomeUnknown, ""))
		requireAs[*effect.Fenced](t, err)
		require.Empty(t, f.Evidence, "it was accepted before")
		require.Equal(t, flight.StateSucceeded, report(t, fd, second, flight.OutcomeSucceeded, "ch_1").State)
	})
}
