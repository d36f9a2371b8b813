package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// TestBounds: a flight stores the newest attempts and the first evidence in full, and counts the rest.
func TestBounds(t *testing.T) {
	p := newScript(t, resend)
	for i := range 3 * flight.MaxAttempts {
		p.run(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, byte(i)}, start.Add(time.Second) }, 1+2*(i%2), nonce1)).
			expect(flight.DecisionProceed, flight.StateRunning)
		if i < 3*flight.MaxAttempts-1 {
			p.run(report(i+1, flight.OutcomeUnknown, ""))
		}
	}
	f := p.flight()
	p.check(len(f.Attempts) == flight.MaxAttempts && f.AttemptCount == 3*flight.MaxAttempts && f.TaintingAttempts == f.AttemptCount-1, "attempts")
	for n := range 2 * flight.MaxAttempts {
		p.run(report(n+1, flight.OutcomeRefused, "")).expect(flight.DecisionFenced, flight.StateRunning)
	}
	f = p.flight()
	p.check(len(f.Evidence) == flight.MaxEvidence && f.EvidenceOmitted == flight.MaxAttempts, "evidence")
	p.run(report(1, flight.OutcomeSucceeded, "y")).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(report(3*flight.MaxAttempts, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(p.flight().Overlap, "evidence of a success finds room")
}

// TestNonces: a used nonce is remembered in the next generation and in a tombstone, while an Open that carries it may be
// valid.
func TestNonces(t *testing.T) {
	newScript(t, hold).run(open(1, nonce2), report(1, flight.OutcomeSucceeded, "x"), free, open(1, nonce2)).expect(flight.DecisionFenced, flight.StateAbsent)
	newScript(t, hold).run(open(1, nonce2), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention), expire, free, open(1, nonce2)).expect(flight.DecisionFenced, flight.StateAbsent)
	newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), abandon(nonce2), afterTime(retention), expire, free, open(2, nonce2)).expect(flight.DecisionFenced, flight.StateAbsent)
}

// TestNonces_AreRememberedWhileTheirOpenIsValid checks that a nonce is forgotten when its Open has expired.
func TestNonces_AreRememberedWhileTheirOpenIsValid(t *testing.T) {
	p := newScript(t, resend).run(abandon(nonce1), abandon(nonce3), open(1, nonce2), report(1, flight.OutcomeNotDone, ""))
	p.check(len(p.flight().UsedNonces) == 2, "both are remembered")
	p.run(afterTime(26*time.Second), verifyAs(4)).expect(flight.DecisionProceed, flight.StateRunning)
	p.check(len(p.flight().UsedNonces) == 1, "the first one has expired")
	p.run(open(1, nonce1), open(1, nonce2), open(1, nonce3)).expect(flight.DecisionFenced, flight.StateRunning)
}

// TestNonces_Exhausted: a flight remembers MaxUsedNonces used nonces, and rejects commands with further ones.
func TestNonces_Exhausted(t *testing.T) {
	p := newScript(t, hold)
	numbered := func(i int) flight.Nonce { return flight.Nonce{7, byte(i >> 8), byte(i)} }
	valid := func(a *flight.Abandon) { a.NotAfter = start.Add(time.Minute) }
	for i := range flight.MaxUsedNonces {
		p.run(abandonAs(valid, numbered(i))).expect(flight.DecisionAccepted, flight.StateAbsent)
	}
	p.run(abandonAs(valid, numbered(0))).expect(flight.DecisionAccepted, flight.StateAbsent) // it is remembered already
	p.run(abandonAs(valid, numbered(flight.MaxUsedNonces))).expect(flight.DecisionExhausted, flight.StateAbsent)
	p.run(open(1, nonce1)).expect(flight.DecisionExhausted, flight.StateAbsent)
	p.run(open(1, nonce3)).expect(flight.DecisionExhausted, flight.StateAbsent)
	p.run(afterTime(time.Minute+time.Millisecond), verifyAs(4)).expect(flight.DecisionProceed, flight.StateRunning)
	p.check(len(p.flight().UsedNonces) == 0, "they have expired")
}

// TestNonces_OfEndedAttempts checks that a generation's end remembers the nonces of all its attempts, beyond the bound.
func TestNonces_OfEndedAttempts(t *testing.T) {
	p := newScript(t, resend)
	for i := range 20 {
		p.run(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, byte(i)}, start.Add(time.Minute) }, 1, nonce1), report(i+1, flight.OutcomeNotDone, ""))
	}
	p.check(len(p.flight().UsedNonces) == 4, "those of the attempts that are not kept")
	p.run(cancel, retry)
	p.check(len(p.flight().UsedNonces) == 20, "those of all attempts of the generation before")
	p.run(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, 3}, start.Add(time.Minute) }, 1, nonce1)).expect(flight.DecisionFenced, flight.StateReady)
}

// TestNonces_KeepTheVersion: a person's decision on a version is accepted although other callers asked meanwhile, and a
// repeat of the decision is recognized.
func TestNonces_KeepTheVersion(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), endSession(1)).expect(flight.DecisionAccepted, flight.StateInDoubt)
	seen := p.flight().Version
	decision := resolve(flight.FindingNotHappened)(p.ledger)
	p.run(open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	require.True(t, p.last.Changed, "the nonce must be stored")
	p.run(abandon(flight.Nonce{5}), open(1, nonce3)).expect(flight.DecisionOpenExpired, flight.StateInDoubt)
	require.Empty(t, p.last.Events)
	require.Equal(t, seen, p.flight().Version)
	decided := func(*ledger) flight.Command { return decision }
	p.run(decided).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(abandon(flight.Nonce{6}), decided).expect(flight.DecisionAccepted, flight.StateReady)
	require.Greater(t, p.flight().Version.Index, seen.Index)
}

// TestNonces_OfUnusedKey checks that used nonces create a record, which is deleted when they have expired.
func TestNonces_OfUnusedKey(t *testing.T) {
	p := newScript(t, hold).run(abandon(nonce1)).expect(flight.DecisionAccepted, flight.StateAbsent)
	require.Equal(t, p.ledger.header.Version.Index-1, p.flight().Version.Index)
	p.run(afterTime(25*time.Second), expire).expect(flight.DecisionNotFound, flight.StateAbsent)
	p.run(afterTime(time.Millisecond), expire).expect(flight.DecisionAccepted, flight.StateAbsent)
	require.True(t, p.last.Deleted)
	require.Nil(t, p.flight())
	p.run(expire, open(1, nonce1)).expect(flight.DecisionOpenExpired, flight.StateAbsent)
}

// TestExpire_KeepsGuardingRecord: a record that was freed, or has evidence, is not deleted.
func TestExpire_KeepsGuardingRecord(t *testing.T) {
	newScript(t, hold).run(lostReport(1, 1, flight.OutcomeNotDone), afterTime(time.Hour), expire).expect(flight.DecisionNotFound, flight.StateAbsent)
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), free, afterTime(time.Hour), expire).expect(flight.DecisionNotFound, flight.StateAbsent)
	require.NotNil(t, p.flight())
}
