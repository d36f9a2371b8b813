package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// A restored ledger has a new store epoch. Commands for the previous store epoch do nothing.
func TestHazard22_CommandsForAnotherStoreEpochDoNothing(t *testing.T) {
	restored := func(*ledger) flight.Command { return &restore{} }
	newScript(t, hold).run(restored, open(1, nonce1)).expect(flight.DecisionFenced, flight.StateAbsent)
	p := newScript(t, hold).run(open(1, nonce1), restored, endSession(1)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(abandon(nonce1)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(withdrawSession(1)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce2)).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(abandonAs(func(a *flight.Abandon) { a.StoreEpoch = 2 }, nonce1)).expect(flight.DecisionAccepted, flight.StateReady)
}

// An attempt that a restored ledger still holds open gets a token of the new store epoch by the repeat of its Open. It may
// report under both tokens: no other attempt of the key has either of them.
func TestHazard22_ARestoredAttemptReportsUnderBothTokens(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), func(*ledger) flight.Command { return &restore{} })
	p.run(openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce1)).expect(flight.DecisionProceed, flight.StateRunning)
	require.Equal(t, flight.Token{StoreEpoch: 2, Number: 1}, p.last.Token)
	again := attemptRef{generation: 1, token: p.last.Token}
	p.run(func(*ledger) flight.Command { return reportOf(soloKey, again, flight.OutcomeSucceeded, "x") }).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(!p.flight().Overlap && p.flight().Evidence == nil, "both reports name one attempt")
}

// A report of a flight that the ledger has lost counts also where nobody has accepted the restore: the spool of a copied
// directory may be newer than its ledger. The number of its attempt is not assigned again, and the next attempt has the
// idempotency key of the report's generation.
func TestHazard22_AReportOfALostFlightIsKept(t *testing.T) {
	p := newScript(t, hold).run(lostReport(3, 7, flight.OutcomeNotDone)).expect(flight.DecisionFenced, flight.StateAbsent)
	p.check(p.flight().Generation == 3 && p.flight().Fence.Number == 7 && len(p.flight().Evidence) == 1, "generation, fence and evidence of the report")
	p.run(open(1, nonce1)).expect(flight.DecisionProceed, flight.StateRunning)
	require.Equal(t, flight.Token{StoreEpoch: 1, Number: 8}, p.last.Token)

	p = newScript(t, hold).run(lostReport(3, 7, flight.OutcomeSucceeded)).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(lostReport(3, 7, flight.OutcomeSucceeded)).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(lostReport(3, 7, flight.OutcomeUnknown)).expect(flight.DecisionFenced, flight.StateSucceeded)

	p = newScript(t, hold).run(open(1, nonce1), lostReport(1, 3, flight.OutcomeUnknown)).expect(flight.DecisionAccepted, flight.StateRunning)
	p.run(report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	p.run(resolve(flight.FindingNotHappened), open(1, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	require.Equal(t, uint32(4), p.last.Token.Number)
}

// A ledger that is older than the one in which a key was opened opens no attempt for it.
func TestHazard22_AnOlderLedgerOpensNothing(t *testing.T) {
	newer := func(*ledger) flight.Command {
		return reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 2, Number: 1}}, flight.OutcomeNotDone, "")
	}
	newScript(t, hold).run(newer, open(1, nonce1)).expect(flight.DecisionFenced, flight.StateAbsent)
}

func TestHazard30_TheSameKeyWithAnotherInputNeverRuns(t *testing.T) {
	other := openAs(func(o *flight.Open) { o.Submission.Fingerprint = fp2 }, 2, nonce2)
	lives := map[string][]step{
		"ready":     {submit},
		"running":   {open(1, nonce1)},
		"in doubt":  {open(1, nonce1), endSession(1)},
		"succeeded": {open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")},
		"expired":   {open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention), expire},
	}
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			p := newScript(t, hold).run(life...)
			p.run(other).expect(flight.DecisionConflict, p.flight().State).check(!p.last.Changed, "nothing changed")
		})
	}
}

func TestHazard31_FirstInputAndIdempotencyKeyAreKept(t *testing.T) {
	withInput := func(text string, session int, n flight.Nonce) step {
		return openAs(func(o *flight.Open) { o.Submission.Fingerprint, o.Submission.Input = flight.NoFingerprint, body(text) }, session, n)
	}
	p := newScript(t, resend).run(withInput("first", 1, nonce1), endSession(1), withInput("second", 2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	p.check(string(p.flight().Input.Data) == "first", "every later attempt sends the first input")
	h := p.ledger.header
	key := h.IdempotencyKey(soloKey, 1)
	h.Now, h.LeaseEpoch, h.StoreEpoch = h.Now+1, 9, 99
	p.check(len(key) <= 64 && key == h.IdempotencyKey(soloKey, 1), "the idempotency key has no attempt or time in it")
	p.check(key != h.IdempotencyKey(soloKey, 2) && key != h.IdempotencyKey(stepKey, 1), "but generation and key")
}

func TestHazard32_NoResendAfterTheProviderForgotTheKey(t *testing.T) {
	surely := providerWindow * 19 / 20 // the ledger's time may be this slow
	newScript(t, resendFor).run(open(1, nonce1), afterTime(surely-time.Millisecond), endSession(1), open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	newScript(t, resendFor).run(open(1, nonce1), afterTime(surely), endSession(1), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	newScript(t, resendFor).run(open(1, nonce1), endSession(1), afterTime(surely), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	newScript(t, resendFor).run(open(1, nonce1), afterTime(providerWindow), endSession(1), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	newScript(t, resendFor).run(open(1, nonce1), report(1, flight.OutcomeUnknown, ""), afterTime(providerWindow), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	ask := resendFor
	ask.Lookup = true
	newScript(t, ask).run(open(1, nonce1), afterTime(providerWindow), endSession(1), afterTime(settleDelay), open(2, nonce2)).expect(flight.DecisionVerify, flight.StateRunning)
	newScript(t, resendFor).run(open(1, nonce1), report(1, flight.OutcomeNotDone, ""), afterTime(providerWindow), open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
}

// An attempt may last as long as its time-out, and its request must arrive while the provider remembers the key.
func TestHazard32_AnAttemptEndsBeforeTheProviderForgetsTheKey(t *testing.T) {
	p := resendFor
	p.AttemptTimeout = timeout
	surely := providerWindow*19/20 - timeout
	newScript(t, p).run(open(1, nonce1), endSession(1), afterTime(surely-time.Millisecond), open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	newScript(t, p).run(open(1, nonce1), endSession(1), afterTime(surely), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	again := []step{open(1, nonce1), endSession(1), afterTime(surely - time.Millisecond), open(2, nonce2)}
	newScript(t, p).run(again...).run(afterTime(timeout), report(2, flight.OutcomeRefused, "")).expect(flight.DecisionAccepted, flight.StateFailed)
	newScript(t, p).run(again...).run(afterTime(timeout+time.Millisecond), report(2, flight.OutcomeRefused, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
}

// The ledger's time may be behind the wall clock; the provider's clock is not.
func TestHazard32_TheLaterClockClosesTheWindow(t *testing.T) {
	newScript(t, resendFor).run(open(1, nonce1), endSession(1), wallAhead(settleDelay), open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	newScript(t, resendFor).run(open(1, nonce1), endSession(1), wallAhead(time.Hour), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	newScript(t, resendFor).run(open(1, nonce1), wallAhead(time.Hour), report(1, flight.OutcomeUnknown, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	newScript(t, resendFor).run(open(1, nonce1), endSession(1), open(2, nonce2), wallAhead(time.Hour), report(2, flight.OutcomeRefused, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
}

// The answer has the rest of the window, because the caller starts the effect later than the ledger answered.
func TestHazard32_WhatIsLeftOfTheWindow(t *testing.T) {
	bounded := resendFor
	bounded.AttemptTimeout = timeout
	p := newScript(t, bounded).run(open(1, nonce1))
	until, ok := p.flight().ResendUntil()
	require.True(t, ok)
	require.Equal(t, start.Add(14*time.Second), until)
	_, ok = p.flight().ResendLeft(start)
	require.False(t, ok, "without an earlier effect there is no bound")
	p.run(endSession(1), afterTime(4*time.Second), open(2, nonce2))
	left, ok := p.flight().ResendLeft(start.Add(4 * time.Second))
	require.True(t, ok)
	require.Equal(t, 10*time.Second, left)
	left, ok = p.flight().ResendLeft(start.Add(15 * time.Second))
	require.True(t, ok, "an expired window is a bound")
	require.Zero(t, left)
	_, ok = newScript(t, resend).run(open(1, nonce1), endSession(1), open(2, nonce2)).flight().ResendLeft(start)
	require.False(t, ok, "the provider never forgets")
	for _, h := range []flight.Header{{Now: 5, Wall: 9}, {Now: 9, Wall: 5}, {Now: 9}} {
		require.Equal(t, flight.Time(9), h.Latest(h.Now))
		require.Equal(t, flight.Time(11), h.Latest(h.Now+2), "the lead of the wall clock is kept")
	}
}

func TestHazard34_ATombstoneStillAnswers(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"))
	digest := p.flight().Receipt.Body.Digest
	p.run(afterTime(retention-time.Millisecond), expire).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded)
	p.run(afterTime(time.Millisecond), expire, open(2, nonce2)).expect(flight.DecisionExpired, flight.StateExpired)
	f := p.flight()
	p.check(f.FinalState == flight.StateSucceeded && f.Receipt.Outcome == flight.OutcomeSucceeded && f.Receipt.Body.Digest == digest && f.Fingerprint == fp1, "the fields that guard the key are kept")
	b, err := flight.EncodeRecord(f)
	require.NoError(t, err)
	require.Less(t, len(b), 250, "size of a new tombstone in bytes")
	p.run(report(1, flight.OutcomeSucceeded, "x"), report(1, flight.OutcomeUnknown, "")).expect(flight.DecisionFenced, flight.StateExpired)
	require.Same(t, f, p.flight(), "a report without a second effect is not stored")
	p.run(report(1, flight.OutcomeSucceeded, "y")).expect(flight.DecisionFenced, flight.StateExpired).check(p.flight().Overlap, "a late report of another effect is still flagged")
}

// A restarted node has a new session. It adopts no attempt of its previous incarnation, because it does not know the nonce.
func TestHazard36_ARestartedHolderIsNotRecognized(t *testing.T) {
	restarted := flight.Session{ID: "A after its restart", Revision: 11, Epoch: 1}
	p := newScript(t, hold).run(open(1, nonce1), func(*ledger) flight.Command {
		return openOf(soloKey, flight.Policy{}, restarted, nonce2, fp1)
	}).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(endSession(1), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	p.check(p.flight().AttemptCount == 1, "it adopts nothing")
}

func TestHazard39_AStaleDriverStartsNothing(t *testing.T) {
	w := newLedger(sagaKey, stepKey, undoKey)
	say := func(want flight.Decision, c flight.Command) {
		t.Helper()
		next, reply, err := w.apply(c)
		require.NoError(t, err, describe(c))
		require.Equal(t, want.String(), reply.Decision.String(), describe(c))
		w = next
	}
	start := func(k flight.Key, driver int) flight.Command {
		return &flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp1, Driver: w.openedAttempts[0][driver-1].token}}
	}
	turn := func(driver int) flight.Command {
		return &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: w.openedAttempts[0][driver-1].token}
	}
	say(flight.DecisionAccepted, &flight.Submit{Key: sagaKey, Submission: flight.Submission{Fingerprint: fp1, Policy: sagaPolicy}})
	say(flight.DecisionFenced, openOf(sagaKey, sagaPolicy, sessions[0], nonce1, fp1)) // a driver has no session
	say(flight.DecisionProceed, openOf(sagaKey, sagaPolicy, flight.Session{}, nonce1, fp1))
	say(flight.DecisionFenced, openOf(stepKey, hold, sessions[1], nonce1, fp1)) // nobody has submitted it
	say(flight.DecisionProceed, openOf(sagaKey, sagaPolicy, flight.Session{}, nonce2, fp1))
	say(flight.DecisionFenced, start(stepKey, 1))
	say(flight.DecisionAccepted, start(stepKey, 2))
	say(flight.DecisionProceed, openOf(stepKey, hold, sessions[1], nonce1, fp1))
	say(flight.DecisionFenced, start(undoKey, 2))
	say(flight.DecisionFailedPrecondition, turn(2)) // it was not cancelled
	say(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
	say(flight.DecisionFenced, turn(1))
	say(flight.DecisionAccepted, turn(2))
	say(flight.DecisionAccepted, turn(2))
	say(flight.DecisionAccepted, start(undoKey, 2))
	say(flight.DecisionAccepted, reportOf(stepKey, w.openedAttempts[1][0], flight.OutcomeNotDone, ""))
	say(flight.DecisionReplay, openOf(stepKey, hold, sessions[2], nonce2, fp1)) // it was cancelled
	say(flight.DecisionAccepted, reportOf(sagaKey, w.openedAttempts[0][1], flight.OutcomeRefused, ""))
	say(flight.DecisionFenced, &flight.Cancel{Key: undoKey, Generation: 1, Driver: w.openedAttempts[0][1].token}) // its saga is over
}

func TestHazard40_AVoidedStepIsNeverOpened(t *testing.T) {
	newScript(t, hold).run(seal, open(1, nonce1)).expect(flight.DecisionReplay, flight.StateCancelled)
	newScript(t, hold).run(submit, seal, open(1, nonce1)).expect(flight.DecisionReplay, flight.StateCancelled)
	newScript(t, hold).run(seal, func(*ledger) flight.Command {
		return reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}, flight.OutcomeSucceeded, "x")
	}).expect(flight.DecisionFenced, flight.StateCancelled)

	// A step of unknown outcome goes on after the cancel, and never after the flip. A driver that flips too early can do no more harm.
	apply, token, of := sagaScript(t)
	apply(flight.DecisionAccepted, endSessionOf(sessions[0]))
	require.Equal(t, flight.StateInDoubt, of(stepKey).State)
	apply(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
	apply(flight.DecisionAccepted, &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: token()})
	apply(flight.DecisionFenced, openOf(stepKey, hold, sessions[2], nonce2, fp1))
}

// sagaScript is a saga with one step, driven by one driver.
func sagaScript(t *testing.T) (apply func(want flight.Decision, c flight.Command) flight.Reply, token func() flight.Token, of func(flight.Key) *flight.Flight) {
	w := newLedger(sagaKey, stepKey, undoKey)
	apply = func(want flight.Decision, c flight.Command) flight.Reply {
		t.Helper()
		next, reply, err := w.apply(c)
		require.NoError(t, err, describe(c))
		require.Equal(t, want.String(), reply.Decision.String(), describe(c))
		w = next
		return reply
	}
	token = func() flight.Token { all := w.openedAttempts[0]; return all[len(all)-1].token }
	of = func(k flight.Key) *flight.Flight { return w.flight(k) }
	apply(flight.DecisionAccepted, &flight.Submit{Key: sagaKey, Submission: flight.Submission{Fingerprint: fp1, Policy: sagaPolicy}})
	apply(flight.DecisionProceed, openOf(sagaKey, sagaPolicy, flight.Session{}, nonce1, fp1))
	apply(flight.DecisionAccepted, &flight.Submit{Key: stepKey, Submission: flight.Submission{Fingerprint: fp1, Driver: token()}})
	apply(flight.DecisionProceed, openOf(stepKey, hold, sessions[0], nonce1, fp1))
	return apply, token, of
}

func TestHazard41_AnUndoThatFailsWaitsForAPerson(t *testing.T) {
	for finding, end := range map[flight.Finding]flight.State{flight.FindingNotHappened: flight.StateReady, flight.FindingHappened: flight.StateSucceeded, flight.FindingFail: flight.StateFailed} {
		apply, token, of := sagaScript(t)
		apply(flight.DecisionAccepted, reportOf(stepKey, attemptRef{generation: 1, token: of(stepKey).Newest().Token()}, flight.OutcomeSucceeded, "x"))
		apply(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
		apply(flight.DecisionAccepted, &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: token()})
		apply(flight.DecisionAccepted, &flight.Submit{Key: undoKey, Submission: flight.Submission{Fingerprint: fp1, Driver: token()}})
		undo := apply(flight.DecisionProceed, openOf(undoKey, hold, sessions[0], nonce2, fp1))
		apply(flight.DecisionAccepted, reportOf(undoKey, attemptRef{generation: 1, token: undo.Token}, flight.OutcomeRefused, ""))
		f := of(undoKey)
		require.Equal(t, flight.StateInDoubt, f.State)
		apply(flight.DecisionAccepted, &flight.Resolve{Key: undoKey, Generation: 1, Version: f.Version, Finding: finding})
		require.Equal(t, end, of(undoKey).State)
	}
}

func TestHazard42_ASuccessAndTheCancelOfItsSagaAreOrderedByTheLog(t *testing.T) {
	// The success comes after the cancel and before the flip: it is undone.
	apply, token, of := sagaScript(t)
	apply(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
	apply(flight.DecisionAccepted, reportOf(stepKey, attemptRef{generation: 1, token: of(stepKey).Newest().Token()}, flight.OutcomeSucceeded, "x"))
	apply(flight.DecisionAccepted, &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: token()})
	apply(flight.DecisionAccepted, &flight.Submit{Key: undoKey, Submission: flight.Submission{Fingerprint: fp1, Driver: token()}})

	// The step is the pivot, and the driver passes it: the cancel has lost, and the next one is rejected.
	apply, token, of = sagaScript(t)
	apply(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
	apply(flight.DecisionAccepted, reportOf(stepKey, attemptRef{generation: 1, token: of(stepKey).Newest().Token()}, flight.OutcomeSucceeded, "x"))
	apply(flight.DecisionAccepted, &flight.PassPivot{Key: sagaKey, Generation: 1, Token: token()})
	apply(flight.DecisionFailedPrecondition, &flight.BeginUndo{Key: sagaKey, Generation: 1, Token: token()})
	apply(flight.DecisionFailedPrecondition, &flight.Cancel{Key: sagaKey, Generation: 1})
	apply(flight.DecisionFenced, &flight.Submit{Key: undoKey, Submission: flight.Submission{Fingerprint: fp1, Driver: token()}})

	// A person takes the step for not done, and is wrong.
	apply, _, of = sagaScript(t)
	apply(flight.DecisionFailedPrecondition, &flight.Cancel{Key: stepKey, Generation: 1}) // that is its saga's
	apply(flight.DecisionAccepted, &flight.Cancel{Key: sagaKey, Generation: 1})
	apply(flight.DecisionAccepted, endSessionOf(sessions[0]))
	apply(flight.DecisionAccepted, &flight.Resolve{Key: stepKey, Generation: 1, Version: of(stepKey).Version, Finding: flight.FindingNotHappened})
	require.Equal(t, flight.StateCancelled, of(stepKey).State)
	apply(flight.DecisionFenced, reportOf(stepKey, attemptRef{generation: 1, token: of(stepKey).Newest().Token()}, flight.OutcomeSucceeded, "x"))
	require.True(t, of(stepKey).Overlap)
}

func TestHazard43_ThePersonAndTheZombieDecideInLogOrder(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), endSession(1)).expect(flight.DecisionAccepted, flight.StateInDoubt)
	seen := p.flight().Version
	p.run(report(1, flight.OutcomeSucceeded, "y")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(func(*ledger) flight.Command {
		return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Finding: flight.FindingHappened, ExternalID: "x", Body: bodies["x"]}
	}).expect(flight.DecisionFailedPrecondition, flight.StateSucceeded).check(p.flight().Receipt.ExternalID == "y", "the report came first")

	p = newScript(t, hold).run(open(1, nonce1), endSession(1), resolve(flight.FindingFail), report(1, flight.OutcomeSucceeded, "y"))
	p.expect(flight.DecisionFenced, flight.StateFailed).check(p.flight().Overlap && len(p.flight().Evidence) == 1, "the person came first, and was wrong")
}
