package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// A restored ledger has a new store epoch. Commands for the previous store epoch do nothing.
func TestHazard22_CommandsForAnotherStoreEpochDoNothing(t *testing.T) {
	restored := func(*world) flight.Command { return &restore{} }
	newPlay(t, hold).do(restored, open(1, nonce1)).expect(flight.Fenced, flight.Absent)
	p := newPlay(t, hold).do(open(1, nonce1), restored, ended(1)).expect(flight.Fenced, flight.Running)
	p.do(abandon(nonce1)).expect(flight.Fenced, flight.Running)
	p.do(withdraw(1)).expect(flight.Fenced, flight.Running)
	p.do(openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce2)).expect(flight.Busy, flight.Running)
	p.do(abandonAs(func(a *flight.Abandon) { a.StoreEpoch = 2 }, nonce1)).expect(flight.Accepted, flight.Queued)
}

// An attempt that a restored ledger still holds open gets a token of the new store epoch by the repeat of its Open. A
// report with the old token is evidence: the attempt may have ended differently in the ledger that was lost.
func TestHazard22_ARestoredAttemptReportsUnderANewToken(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), func(*world) flight.Command { return &restore{} })
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Running)
	p.check(len(p.flight().Evidence) == 1 && p.flight().Fence == flight.Token{StoreEpoch: 1, Number: 1}, "kept, and moves no fence")
	p.do(openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce1)).expect(flight.Proceed, flight.Running)
	require.Equal(t, flight.Token{StoreEpoch: 2, Number: 1}, p.last.Token)
	again := attemptRef{generation: 1, token: p.last.Token}
	p.do(func(*world) flight.Command { return reportOf(soloKey, again, flight.Succeeded, "x") }).expect(flight.Accepted, flight.StateSucceeded)
	p.check(!p.flight().Overlap, "both reports name one effect")
}

// A report of a flight that the restored ledger has lost is evidence. The number of its attempt is not assigned again, and
// the next attempt has the idempotency key of the report's generation.
func TestHazard22_AReportOfALostFlightIsKept(t *testing.T) {
	p := newPlay(t, hold).do(lostReport(3, 7, flight.Succeeded)).expect(flight.Fenced, flight.Absent)
	p.check(p.flight().Generation == 3 && p.flight().Fence.Number == 7 && len(p.flight().Evidence) == 1, "generation, fence and evidence of the report")
	p.do(open(1, nonce1)).expect(flight.Proceed, flight.Running)
	require.Equal(t, flight.Token{StoreEpoch: 1, Number: 8}, p.last.Token)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(p.flight().Overlap, "the lost attempt had another effect")

	p = newPlay(t, hold).do(open(1, nonce1), lostReport(1, 3, flight.Unknown)).expect(flight.Fenced, flight.Running)
	p.do(report(1, flight.NotDone, ""), open(1, nonce2)).expect(flight.Proceed, flight.Running)
	require.Equal(t, uint32(4), p.last.Token.Number)
}

// A ledger that is older than the one in which a key was opened opens no attempt for it and creates no flight.
func TestHazard22_AnOlderLedgerOpensNothing(t *testing.T) {
	newer := func(*world) flight.Command {
		return reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 2, Number: 1}}, flight.Unknown, "")
	}
	newPlay(t, hold).do(newer, open(1, nonce1)).expect(flight.Fenced, flight.Absent)
}

func TestHazard30_TheSameKeyWithAnotherInputNeverRuns(t *testing.T) {
	other := openAs(func(o *flight.Open) { o.Submission.Fingerprint = fp2 }, 2, nonce2)
	lives := map[string][]say{
		"queued":    {submit},
		"running":   {open(1, nonce1)},
		"in doubt":  {open(1, nonce1), ended(1)},
		"succeeded": {open(1, nonce1), report(1, flight.Succeeded, "x")},
		"expired":   {open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire},
	}
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, hold).do(life...)
			p.do(other).expect(flight.Conflict, p.flight().State).check(!p.last.Changed, "nothing changed")
		})
	}
}

func TestHazard31_TheFirstInputAndIdempotencyKeyStand(t *testing.T) {
	withInput := func(text string, session int, n flight.Nonce) say {
		return openAs(func(o *flight.Open) { o.Submission.Fingerprint, o.Submission.Input = flight.NoFingerprint, body(text) }, session, n)
	}
	p := newPlay(t, resend).do(withInput("first", 1, nonce1), ended(1), withInput("second", 2, nonce2)).expect(flight.Proceed, flight.Running)
	p.check(string(p.flight().Input.Data) == "first", "every later attempt sends the first input")
	h := p.w.header
	key := h.IdempotencyKey(soloKey, 1)
	h.Now, h.LeaseEpoch, h.StoreEpoch = h.Now+1, 9, 99
	p.check(len(key) <= 64 && key == h.IdempotencyKey(soloKey, 1), "the idempotency key has no attempt or time in it")
	p.check(key != h.IdempotencyKey(soloKey, 2) && key != h.IdempotencyKey(stepKey, 1), "but generation and key")
}

func TestHazard32_NoResendAfterTheProviderForgotTheKey(t *testing.T) {
	surely := window * 19 / 20 // the ledger's time may be this slow
	newPlay(t, resendFor).do(open(1, nonce1), after(surely-time.Millisecond), ended(1), open(2, nonce2)).expect(flight.Proceed, flight.Running)
	newPlay(t, resendFor).do(open(1, nonce1), after(surely), ended(1), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), ended(1), after(surely), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), after(window), ended(1), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), report(1, flight.Unknown, ""), after(window), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	ask := resendFor
	ask.Lookup = true
	newPlay(t, ask).do(open(1, nonce1), after(window), ended(1), after(settle), open(2, nonce2)).expect(flight.Look, flight.Running)
	newPlay(t, resendFor).do(open(1, nonce1), report(1, flight.NotDone, ""), after(window), open(2, nonce2)).expect(flight.Proceed, flight.Running)
}

// An attempt may last as long as its time-out, and its request must arrive while the provider remembers the key.
func TestHazard32_AnAttemptEndsBeforeTheProviderForgetsTheKey(t *testing.T) {
	p := resendFor
	p.AttemptTimeout = timeout
	surely := window*19/20 - timeout
	newPlay(t, p).do(open(1, nonce1), ended(1), after(surely-time.Millisecond), open(2, nonce2)).expect(flight.Proceed, flight.Running)
	newPlay(t, p).do(open(1, nonce1), ended(1), after(surely), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	again := []say{open(1, nonce1), ended(1), after(surely - time.Millisecond), open(2, nonce2)}
	newPlay(t, p).do(again...).do(after(timeout), report(2, flight.Refused, "")).expect(flight.Accepted, flight.StateFailed)
	newPlay(t, p).do(again...).do(after(timeout+time.Millisecond), report(2, flight.Refused, "")).expect(flight.Accepted, flight.InDoubt)
}

// The ledger's time may be behind the wall clock; the provider's clock is not.
func TestHazard32_TheLaterClockClosesTheWindow(t *testing.T) {
	newPlay(t, resendFor).do(open(1, nonce1), ended(1), wallAhead(settle), open(2, nonce2)).expect(flight.Proceed, flight.Running)
	newPlay(t, resendFor).do(open(1, nonce1), ended(1), wallAhead(time.Hour), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), wallAhead(time.Hour), report(1, flight.Unknown, "")).expect(flight.Accepted, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), ended(1), open(2, nonce2), wallAhead(time.Hour), report(2, flight.Refused, "")).expect(flight.Accepted, flight.InDoubt)
}

// The answer has the rest of the window, because the caller starts the effect later than the ledger answered.
func TestHazard32_WhatIsLeftOfTheWindow(t *testing.T) {
	bounded := resendFor
	bounded.AttemptTimeout = timeout
	p := newPlay(t, bounded).do(open(1, nonce1))
	until, ok := p.flight().ResendUntil()
	require.True(t, ok)
	require.Equal(t, start.Add(14*time.Second), until)
	_, ok = p.flight().ResendLeft(start)
	require.False(t, ok, "without an earlier effect there is no bound")
	p.do(ended(1), after(4*time.Second), open(2, nonce2))
	left, ok := p.flight().ResendLeft(start.Add(4 * time.Second))
	require.True(t, ok)
	require.Equal(t, 10*time.Second, left)
	left, ok = p.flight().ResendLeft(start.Add(15 * time.Second))
	require.True(t, ok, "an expired window is a bound")
	require.Zero(t, left)
	_, ok = newPlay(t, resend).do(open(1, nonce1), ended(1), open(2, nonce2)).flight().ResendLeft(start)
	require.False(t, ok, "the provider never forgets")
	for _, h := range []flight.Header{{Now: 5, Wall: 9}, {Now: 9, Wall: 5}, {Now: 9}} {
		require.Equal(t, flight.Time(9), h.Latest(h.Now))
		require.Equal(t, flight.Time(11), h.Latest(h.Now+2), "the lead of the wall clock is kept")
	}
}

func TestHazard34_ATombstoneStillAnswers(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"))
	digest := p.flight().Receipt.Body.Digest
	p.do(after(retains-time.Millisecond), expire).expect(flight.Precluded, flight.StateSucceeded)
	p.do(after(time.Millisecond), expire, open(2, nonce2)).expect(flight.Gone, flight.Expired)
	f := p.flight()
	p.check(f.Was == flight.StateSucceeded && f.Receipt.Outcome == flight.Succeeded && f.Receipt.Body.Digest == digest && f.Fingerprint == fp1, "the fields that guard the key are kept")
	b, err := flight.EncodeRecord(f)
	require.NoError(t, err)
	require.Less(t, len(b), 250, "size of a new tombstone in bytes")
	p.do(report(1, flight.Succeeded, "x"), report(1, flight.Unknown, "")).expect(flight.Fenced, flight.Expired)
	require.Same(t, f, p.flight(), "a report without a second effect is not stored")
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Expired).check(p.flight().Overlap, "a late report of another effect is still flagged")
}

// A restarted node has a new session. It adopts no attempt of its previous incarnation, because it does not know the nonce.
func TestHazard36_ARestartedHolderIsAStranger(t *testing.T) {
	restarted := flight.Session{ID: "A after its restart", Revision: 11, Epoch: 1}
	p := newPlay(t, hold).do(open(1, nonce1), func(*world) flight.Command {
		return openOf(soloKey, flight.Policy{}, restarted, nonce2, fp1)
	}).expect(flight.Busy, flight.Running)
	p.do(ended(1), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	p.check(p.flight().AttemptCount == 1, "it adopts nothing")
}

func TestHazard39_AStaleDriverStartsNothing(t *testing.T) {
	w := newWorld(sagaKey, stepKey, undoKey)
	say := func(want flight.Decision, c flight.Command) {
		t.Helper()
		next, reply, err := w.step(c)
		require.NoError(t, err, describe(c))
		require.Equal(t, want.String(), reply.Decision.String(), describe(c))
		w = next
	}
	start := func(k flight.Key, driver int) flight.Command {
		return &flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp1, Driver: w.issued[0][driver-1].token}}
	}
	perform := func(driver int, under flight.Session) flight.Command {
		o := openOf(stepKey, hold, under, nonce1, fp1)
		o.Submission.Driver = w.issued[0][driver-1].token
		return o
	}
	turn := func(driver int) flight.Command {
		return &flight.Turn{Key: sagaKey, Generation: 1, Token: w.issued[0][driver-1].token}
	}
	say(flight.Proceed, openOf(sagaKey, sagaPolicy, sessions[0], nonce1, fp1))
	say(flight.Accepted, start(stepKey, 1))
	say(flight.Accepted, endedOf(sessions[0])) // the first driver is paused for too long
	say(flight.Proceed, openOf(sagaKey, sagaPolicy, sessions[1], nonce2, fp1))
	say(flight.SessionEnded, perform(1, sessions[0]))
	say(flight.Fenced, perform(1, sessions[2]))
	say(flight.Proceed, perform(2, sessions[1]))
	say(flight.Fenced, start(undoKey, 1))
	say(flight.Fenced, start(undoKey, 2))
	say(flight.Fenced, turn(1))
	say(flight.Accepted, turn(2))
	say(flight.Accepted, turn(2))
	say(flight.Accepted, start(undoKey, 2))
	say(flight.Accepted, reportOf(stepKey, w.issued[1][0], flight.NotDone, ""))
	say(flight.Fenced, openOf(stepKey, hold, sessions[2], nonce2, fp1)) // no forward step opens any more
}

func TestHazard40_AVoidedStepIsNeverOpened(t *testing.T) {
	newPlay(t, hold).do(seal, open(1, nonce1)).expect(flight.Replay, flight.StateCancelled)
	newPlay(t, hold).do(submit, seal, open(1, nonce1)).expect(flight.Replay, flight.StateCancelled)
	newPlay(t, hold).do(seal, func(*world) flight.Command {
		return reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}, flight.Succeeded, "x")
	}).expect(flight.Fenced, flight.StateCancelled)
}

func TestHazard43_ThePersonAndTheZombieDecideInLogOrder(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), ended(1)).expect(flight.Accepted, flight.InDoubt)
	seen := p.flight().Version
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Accepted, flight.StateSucceeded)
	p.do(func(*world) flight.Command {
		return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Verb: flight.Happened, ExternalID: "x", Body: bodies["x"]}
	}).expect(flight.Precluded, flight.StateSucceeded).check(p.flight().Receipt.ExternalID == "y", "the report came first")

	p = newPlay(t, hold).do(open(1, nonce1), ended(1), resolve(flight.Fail), report(1, flight.Succeeded, "y"))
	p.expect(flight.Fenced, flight.StateFailed).check(p.flight().Overlap && len(p.flight().Evidence) == 1, "the person came first, and was wrong")
}
