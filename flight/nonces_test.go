package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// TestBounds: a flight stores the newest attempts and the first evidence in full, and counts the rest.
func TestBounds(t *testing.T) {
	p := newPlay(t, resend)
	for i := range 3 * flight.MaxAttempts {
		p.do(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, byte(i)}, start.Add(time.Second) }, 1+2*(i%2), nonce1)).
			expect(flight.Proceed, flight.Running)
		if i < 3*flight.MaxAttempts-1 {
			p.do(report(i+1, flight.Unknown, ""))
		}
	}
	f := p.flight()
	p.check(len(f.Attempts) == flight.MaxAttempts && f.AttemptCount == 3*flight.MaxAttempts && f.Doubts == f.AttemptCount-1, "attempts")
	for n := range 2 * flight.MaxAttempts {
		p.do(report(n+1, flight.NotDone, "")).expect(flight.Fenced, flight.Running)
	}
	f = p.flight()
	p.check(len(f.Evidence) == flight.MaxEvidence && f.EvidenceMore == flight.MaxAttempts, "evidence")
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Running)
	p.do(report(3*flight.MaxAttempts, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(p.flight().Overlap, "evidence of a success finds room")
}

// TestNonces: a used nonce is remembered in the next generation and in a tombstone, while an Open that carries it may be
// valid.
func TestNonces(t *testing.T) {
	newPlay(t, hold).do(open(1, nonce2), report(1, flight.Succeeded, "x"), free, open(1, nonce2)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(open(1, nonce2), report(1, flight.Succeeded, "x"), after(retains), expire, free, open(1, nonce2)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), abandon(nonce2), after(retains), expire, free, open(2, nonce2)).expect(flight.Fenced, flight.Absent)
}

// TestNonces_AreRememberedWhileTheirOpenIsValid checks that a nonce is forgotten when its Open has expired.
func TestNonces_AreRememberedWhileTheirOpenIsValid(t *testing.T) {
	p := newPlay(t, resend).do(abandon(nonce1), abandon(nonce3), open(1, nonce2), report(1, flight.NotDone, ""))
	p.check(len(p.flight().UsedNonces) == 2, "both are remembered")
	p.do(after(26*time.Second), look(4)).expect(flight.Proceed, flight.Running)
	p.check(len(p.flight().UsedNonces) == 1, "the first one has expired")
	p.do(open(1, nonce1), open(1, nonce2), open(1, nonce3)).expect(flight.Fenced, flight.Running)
}

// TestNonces_Exhausted: a flight remembers MaxUsedNonces used nonces, and rejects commands with further ones.
func TestNonces_Exhausted(t *testing.T) {
	p := newPlay(t, hold)
	numbered := func(i int) flight.Nonce { return flight.Nonce{7, byte(i >> 8), byte(i)} }
	valid := func(a *flight.Abandon) { a.NotAfter = start.Add(time.Minute) }
	for i := range flight.MaxUsedNonces {
		p.do(abandonAs(valid, numbered(i))).expect(flight.Accepted, flight.Absent)
	}
	p.do(abandonAs(valid, numbered(0))).expect(flight.Accepted, flight.Absent) // it is remembered already
	p.do(abandonAs(valid, numbered(flight.MaxUsedNonces))).expect(flight.Exhausted, flight.Absent)
	p.do(open(1, nonce1)).expect(flight.Exhausted, flight.Absent)
	p.do(open(1, nonce3)).expect(flight.Exhausted, flight.Absent)
	p.do(after(time.Minute+time.Millisecond), look(4)).expect(flight.Proceed, flight.Running)
	p.check(len(p.flight().UsedNonces) == 0, "they have expired")
}

// TestNonces_OfEndedAttempts checks that a generation's end remembers the nonces of all its attempts, beyond the bound.
func TestNonces_OfEndedAttempts(t *testing.T) {
	p := newPlay(t, resend)
	for i := range 20 {
		p.do(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, byte(i)}, start.Add(time.Minute) }, 1, nonce1), report(i+1, flight.NotDone, ""))
	}
	p.check(len(p.flight().UsedNonces) == 4, "those of the attempts that are not kept")
	p.do(cancel, retry)
	p.check(len(p.flight().UsedNonces) == 20, "those of all attempts of the generation before")
	p.do(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, 3}, start.Add(time.Minute) }, 1, nonce1)).expect(flight.Fenced, flight.Queued)
}

// TestNonces_KeepTheVersion: a person's decision on a version is accepted although other callers asked meanwhile, and a
// repeat of the decision is recognized.
func TestNonces_KeepTheVersion(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), ended(1)).expect(flight.Accepted, flight.InDoubt)
	seen := p.flight().Version
	decision := resolve(flight.DidNotHappen)(p.w)
	p.do(open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	require.True(t, p.last.Changed, "the nonce must be stored")
	p.do(abandon(flight.Nonce{5}), open(1, nonce3)).expect(flight.OpenExpired, flight.InDoubt)
	require.Empty(t, p.last.Events)
	require.Equal(t, seen, p.flight().Version)
	decided := func(*world) flight.Command { return decision }
	p.do(decided).expect(flight.Accepted, flight.Queued)
	p.do(abandon(flight.Nonce{6}), decided).expect(flight.Accepted, flight.Queued)
	require.Greater(t, p.flight().Version.Index, seen.Index)
}

// TestNonces_OfUnusedKey checks that used nonces create a record, which is deleted when they have expired.
func TestNonces_OfAKeyThatWasNeverUsed(t *testing.T) {
	p := newPlay(t, hold).do(abandon(nonce1)).expect(flight.Accepted, flight.Absent)
	require.Equal(t, p.w.header.Version.Index-1, p.flight().Version.Index)
	p.do(after(25*time.Second), expire).expect(flight.Missing, flight.Absent)
	p.do(after(time.Millisecond), expire).expect(flight.Accepted, flight.Absent)
	require.True(t, p.last.Deleted)
	require.Nil(t, p.flight())
	p.do(expire, open(1, nonce1)).expect(flight.OpenExpired, flight.Absent)
}

// TestExpire_KeepsGuardingRecord: a record that was freed, or has evidence, is not deleted.
func TestExpire_KeepsWhatGuardsAKey(t *testing.T) {
	newPlay(t, hold).do(lostReport(1, 1, flight.Unknown), after(time.Hour), expire).expect(flight.Missing, flight.Absent)
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), free, after(time.Hour), expire).expect(flight.Missing, flight.Absent)
	require.NotNil(t, p.flight())
}
