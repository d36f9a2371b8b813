package clusterstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// TestRestore_IsStored: a restored ledger stays restored over restarts, and its changes keep the indices true: a cancelled
// flight succeeds, and a flight that is known by a report alone becomes absent again.
func TestRestore_IsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		accept := &flight.Restore{From: 1, Hold: 15 * time.Minute, Actor: "ann", Reason: "disk"}

		propose(t, s, &flight.Submit{Key: testKey(1)})
		propose(t, s, &flight.Cancel{Key: testKey(1), Generation: 1, Actor: "ann"})
		require.Equal(t, flight.DecisionAccepted, propose(t, s, accept).Decision)
		require.Equal(t, flight.DecisionAccepted, propose(t, s, accept).Decision, "a repeat leaves no line in the audit log")
		require.Equal(t, flight.DecisionReconciling, propose(t, s, openOf(s, testKey(3), 3)).Decision)
		require.Equal(t, flight.DecisionBusy, propose(t, s, &flight.FinishRestore{Epoch: s.Header().StoreEpoch}).Decision)

		lost := flight.Token{StoreEpoch: 1, Number: 3}
		require.Equal(t, flight.StateSucceeded, propose(t, s, reportOf(testKey(1), lost, "done")).Flight.State)
		unknown := reportOf(testKey(2), lost, "")
		unknown.Outcome = flight.OutcomeUnknown
		doubt := propose(t, s, unknown).Flight
		require.Equal(t, flight.StateInDoubt, doubt.State)
		requireConsistent(t, s)
		propose(t, s, &flight.Resolve{Key: testKey(2), Generation: 1, Version: doubt.Version, Finding: flight.FindingNotHappened, Actor: "ann"})
		header, hash := s.Header(), stateHash(t, s)
		require.NoError(t, s.Close(context.Background()))

		for _, wiped := range []string{"", stateName(1)} { // a restart, and one that applies the whole log again
			if wiped != "" {
				require.NoError(t, fs.RemoveAll("ledger/"+wiped))
			}
			s, err = Open(context.Background(), memConfig(fs))
			require.NoError(t, err)
			require.True(t, s.Header().Reconciling)
			require.Equal(t, header.StoreEpoch, s.Header().StoreEpoch)
			require.Equal(t, hash, stateHash(t, s))
			requireConsistent(t, s)
			if wiped == "" {
				require.NoError(t, s.Close(context.Background()))
			}
		}
		force := &flight.FinishRestore{Epoch: header.StoreEpoch, Force: true, Actor: "ann", Reason: "no caller was left"}
		require.Equal(t, flight.DecisionAccepted, propose(t, s, force).Decision)
		propose(t, s, force)
		propose(t, s, &flight.Restore{From: header.StoreEpoch, Moved: true, Actor: "ann", Reason: "new host"})
		require.Equal(t, flight.DecisionProceed, propose(t, s, openOf(s, testKey(2), 2)).Decision)
		requireConsistent(t, s)
		require.Equal(t, []string{"cancel test " + testKey(1).String() + " ann ",
			"accept_restore *  ann disk", "resolve test " + testKey(2).String() + " ann ", "force_finish_restore *  ann no caller was left",
			"accept_move *  ann new host"}, auditOf(t, s))
		require.NoError(t, s.Close(context.Background()))
	})
}
