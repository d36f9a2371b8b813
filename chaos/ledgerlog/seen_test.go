package ledgerlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// The holder of a key is lost, another one takes over, and the first one goes on as if nothing had happened.
func TestSeen_TwoHolders(t *testing.T) {
	l, err := newLedger(&clusterstore.Image{Header: flight.Header{StoreEpoch: 1, LeaseEpoch: 1, Now: 1000}}, nil, nil)
	require.NoError(t, err)
	seen := new(Seen)
	w := newWatch(seen)
	key := flight.MustKey("n/pay/1")
	do := func(want flight.Decision, c flight.Command) flight.Token {
		w.term++
		l.header.Version.Index++
		reply := l.applyTo(key, c, w.step)
		require.Equal(t, want, reply.Decision, "%T", c)
		return reply.Token
	}
	open := func(session flight.Session, nonce byte) *flight.Open {
		return &flight.Open{Key: key, Submission: flight.Submission{Policy: flight.Policy{Recovery: flight.RecoveryResend}}, Session: session, Nonce: flight.Nonce{nonce},
			NotAfter: 20_000, StoreEpoch: 1, Owner: "worker"}
	}
	old, next := flight.Session{ID: "old", Revision: 7, Epoch: 1}, flight.Session{ID: "new", Revision: 8, Epoch: 1}
	first := do(flight.DecisionProceed, open(old, 1))
	do(flight.DecisionAccepted, &flight.EndSession{Session: old, ReadRevision: 9, Epoch: 1, StoreEpoch: 1})
	l.sessions.MarkEnded(old.ID, l.header.Now)
	do(flight.DecisionSessionEnded, open(old, 5))
	require.False(t, seen.Lost[0].SameSession, "nothing has opened")
	second := do(flight.DecisionProceed, open(next, 2))
	do(flight.DecisionProceed, open(next, 2))
	do(flight.DecisionBusy, open(next, 3))
	do(flight.DecisionSessionEnded, open(old, 4))
	late := &flight.Report{Key: key, Generation: 1, Token: first, Outcome: flight.OutcomeNotDone}
	do(flight.DecisionFenced, late)
	report := &flight.Report{Key: key, Generation: 1, Token: second, Outcome: flight.OutcomeSucceeded}
	do(flight.DecisionAccepted, report)
	do(flight.DecisionAccepted, report)
	require.Equal(t, []*LostAttempt{{Key: "n/pay/1", Owner: "worker", Number: 1, Cause: sessionEnded, Next: 2, Reported: true, GivenUp: true, session: old, nonce: flight.Nonce{1}}}, seen.Lost)
	require.Equal(t, [44]int{1: 1, 5: 1, 7: 1, 8: 1, 9: 1, 10: 2, 11: 1, 28: 2}, seen.Hazards)
	require.Equal(t, map[string]int{"submitted": 1, "opened": 2, "lost": 1, "reported": 1, "report_fenced": 1}, seen.Events)

	require.Equal(t, 3, (&Seen{Ends: []flight.Time{100, 5000, 5400, 6000, 7500}}).EndedTogether(2))
}
