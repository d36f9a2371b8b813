package flight_test

import (
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
)

// These tests are for the interleavings of lease and ledger that Apply alone decides; the number is the row's in the
// list of races.

func TestHazard1_AnOlderClaimOpensNothingAfterANewerOne(t *testing.T) {
	for _, p := range []flight.Policy{hold, resend, verify} {
		play := newPlay(t, p).do(open(2, nonce1)).expect(flight.Proceed, flight.Running)
		fence := play.flight().Fence
		play.do(open(1, nonce2)).expect(flight.Fenced, flight.Running).check(play.flight().Fence == fence, "the fence moved")
	}
}

func TestHazard3_AnAttemptWithoutProofStaysInDoubtForEver(t *testing.T) {
	newPlay(t, hold).do(open(1, nonce1), recoverBy(2), after(1000*time.Hour), recoverBy(3), submit, cancel, wakeUp, free, retry, expire).
		expect(flight.Precluded, flight.InDoubt)
}

func TestHazard4_TheDefaultAfterACrashIsHold(t *testing.T) {
	newPlay(t, flight.Policy{}).do(open(1, nonce1), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
}

func TestHazard5_ALateReportIsEvidenceAndAnotherEffectIsFlagged(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), open(2, nonce2), report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Running)
	p.check(len(p.flight().Evidence) == 1 && !p.flight().Overlap, "kept, and nothing to compare it with yet")
	p.do(report(2, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(p.flight().Overlap && p.flight().Receipt.ExternalID == "x", "the overlap is flagged when the receipt comes")

	p = newPlay(t, resend).do(open(1, nonce1), open(2, nonce2), report(2, flight.Succeeded, "x"), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.StateSucceeded).check(!p.flight().Overlap, "the same effect is no overlap")
	p.do(report(1, flight.Succeeded, "y")).check(p.flight().Overlap, "another one is")

	p = newPlay(t, resend).do(open(1, nonce1), open(2, nonce2), report(2, flight.Refused, ""), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.StateFailed).check(p.flight().Overlap, "a success against a refusal is an overlap")
}

func TestHazard5_OverlapAcrossGenerations(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), free, open(2, nonce2), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.Running).check(!p.flight().Overlap, "the old generation's own receipt again")
	p.do(report(1, flight.Succeeded, "y")).check(p.flight().Overlap && p.flight().Receipt == nil, "another effect of the old generation")
}

func TestHazard6_ANewerClaimThatHasNotOpenedFencesNothing(t *testing.T) {
	p := newPlay(t, verify).do(open(1, nonce1), recoverBy(2), after(settle), recoverBy(2)).expect(flight.Look, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.do(open(2, nonce2)).expect(flight.Replay, flight.StateSucceeded)
}

func TestHazard7_AGrantThatCameTooLateIsAbandoned(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), abandon(1)).expect(flight.Accepted, flight.Queued)
	p.check(!p.flight().Tainted() && p.flight().Counted == 0, "nothing was sent")
	p.do(open(2, nonce2)).expect(flight.Proceed, flight.Running)
}

func TestHazard8_AnOpenOfUnknownOutcomeIsAskedAgainOrGivenUp(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), open(1, nonce1)).expect(flight.Proceed, flight.Running)
	p.check(p.flight().AttemptCount == 1, "one attempt")
	p.do(abandonNonce(sessA, nonce1), open(1, nonce1)).expect(flight.Fenced, flight.Queued)
	newPlay(t, hold).do(abandonNonce(sessA, nonce1), open(1, nonce1)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(after(26*time.Second), open(1, nonce1)).expect(flight.Fenced, flight.Absent)
}

func TestHazard9_ARepeatedReportIsAcceptedAndAnotherReceiptIsNot(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(len(p.flight().Evidence) == 0, "a repeat is no evidence")
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.StateSucceeded)
	p.check(p.flight().Receipt.ExternalID == "x" && p.flight().Overlap, "the first receipt stands, and the other is flagged")
}

func TestHazard10_EveryCommandMayCommitTwice(t *testing.T) {
	// play repeats every command, and judges the repeat; here are the answers.
	p := newPlay(t, verify).do(submit, submit).expect(flight.Accepted, flight.Queued)
	p.do(open(1, nonce1), open(1, nonce1)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Unknown, ""), report(1, flight.Unknown, "")).expect(flight.Accepted, flight.Running)
	p.check(p.flight().Doubts == 1, "one doubt")
	p.do(after(settle), recoverBy(2), recoverBy(2)).expect(flight.Look, flight.Running)
	p.check(p.last.Probe == 2, "one probe")
	p.do(cancel, cancel).expect(flight.Accepted, flight.Running)
	p.do(verdict(flight.DidNotHappen, 0), verdict(flight.DidNotHappen, 0)).expect(flight.Replay, flight.StateCancelled)
	p.do(func(*world) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} },
		func(*world) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} }).expect(flight.Accepted, flight.Queued)
	p.check(p.flight().Generation == 2, "one new generation")
}

func TestHazard11_TwoAskersUnderOneClaim(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), open(1, nonce2)).expect(flight.Busy, flight.Running)
	p.check(p.flight().AttemptCount == 1, "one attempt")
}

func TestHazard12_ANewClaimOfTheSameSessionFencesTheOld(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), open(3, nonce2)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Running)
}

func TestHazard16_AHungHolderIsReplacedWhenItsClaimIsGone(t *testing.T) {
	p := newPlay(t, flight.Policy{Recovery: flight.Verify, AttemptTimeout: settle, SettleDelay: settle})
	p.do(open(1, nonce1), after(time.Hour), recoverBy(1)).expect(flight.Busy, flight.Running) // its claim still stands
	p.do(recoverBy(2)).expect(flight.Busy, flight.Running).check(p.flight().Looking(), "the claim is gone, so it is lost")
}

func TestHazard20_ClaimsOfAnEtcdThatLostItsPastOpenNothing(t *testing.T) {
	low := flight.Claim{Epoch: 1, Revision: 5, Session: sessB}
	openWith := func(c flight.Claim, n flight.Nonce) say {
		return func(*world) flight.Command { return openOf(soloKey, flight.Policy{}, c, n, fp1) }
	}
	p := newPlay(t, resend).do(open(1, nonce1)).check(true, "").do(openWith(low, nonce2)).expect(flight.Fenced, flight.Running)
	p.check(p.w.header.MaxRevision == 10, "the highest revision is remembered")
	raise := func(*world) flight.Command { return &flight.RaiseEpoch{From: 1, Hold: 10 * time.Second} }
	after2 := flight.Claim{Epoch: 2, Revision: 5, Session: sessB}
	p.do(raise, openWith(after2, nonce2)).expect(flight.Busy, flight.Running) // its attempt may still be in the air
	p.check(p.last.Wait == 10*time.Second, "for as long as the operator said")
	p.do(open(3, nonce2)).expect(flight.Fenced, flight.Running) // an old epoch's claim is nothing any more
	p.do(after(10*time.Second), openWith(after2, nonce2)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Running)
}

func TestHazard21_ALeaseThatLivesAgainOpensNothing(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), open(2, nonce2), report(2, flight.NotDone, "")).expect(flight.Accepted, flight.Queued)
	p.do(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{7}, start.Add(time.Second) }, 1, nonce1)).expect(flight.Fenced, flight.Queued)
}

func TestHazard22_CommandsForAnotherStoreEpochOpenNothing(t *testing.T) {
	p := newPlay(t, hold)
	p.w.header.StoreEpoch = 2
	p.do(open(1, nonce1)).expect(flight.Fenced, flight.Absent)
	p.do(openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce1)).expect(flight.Proceed, flight.Running)
}

func TestHazard30_TheSameKeyWithAnotherInputNeverRuns(t *testing.T) {
	other := openAs(func(o *flight.Open) { o.Submission.Fingerprint = fp2 }, 2, nonce2)
	lives := map[string][]say{
		"queued":    {submit},
		"running":   {open(1, nonce1)},
		"in doubt":  {open(1, nonce1), recoverBy(3)},
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
	withInput := func(text string, claim int, n flight.Nonce) say {
		return openAs(func(o *flight.Open) { o.Submission.Fingerprint, o.Submission.Input = flight.NoFingerprint, body(text) }, claim, n)
	}
	p := newPlay(t, resend).do(withInput("first", 1, nonce1), withInput("second", 2, nonce2)).expect(flight.Proceed, flight.Running)
	p.check(string(p.flight().Input.Data) == "first", "the first input is what any later attempt sends")
	h := p.w.header
	key := h.IdempotencyKey(soloKey, 1)
	h.Now, h.LeaseEpoch, h.MaxRevision = h.Now+1, 9, 99
	p.check(len(key) <= 64 && key == h.IdempotencyKey(soloKey, 1), "the idempotency key has no attempt or time in it")
	p.check(key != h.IdempotencyKey(soloKey, 2) && key != h.IdempotencyKey(stepKey, 1), "but generation and key")
}

func TestHazard32_NoResendAfterTheProviderForgotTheKey(t *testing.T) {
	newPlay(t, resendFor).do(open(1, nonce1), after(window-time.Millisecond), open(2, nonce2)).expect(flight.Proceed, flight.Running)
	newPlay(t, resendFor).do(open(1, nonce1), after(window), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	newPlay(t, resendFor).do(open(1, nonce1), report(1, flight.Unknown, ""), after(window), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
	ask := resendFor
	ask.Lookup = true
	newPlay(t, ask).do(open(1, nonce1), after(window), open(2, nonce2), after(settle), open(2, nonce2)).expect(flight.Look, flight.Running)
	newPlay(t, resendFor).do(open(1, nonce1), report(1, flight.NotDone, ""), after(window), open(2, nonce2)).expect(flight.Proceed, flight.Running)
}

func TestHazard34_ATombstoneStillAnswers(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"))
	digest := p.flight().Receipt.Body.Digest
	p.do(after(retains-time.Millisecond), expire).expect(flight.Precluded, flight.StateSucceeded)
	p.do(after(time.Millisecond), expire, open(2, nonce2)).expect(flight.Gone, flight.Expired)
	f := p.flight()
	p.check(f.Was == flight.StateSucceeded && f.Receipt.Outcome == flight.Succeeded && f.Receipt.Body.Digest == digest && f.Fingerprint == fp1, "what guards the key is kept")
	b, err := flight.EncodeRecord(f)
	if err != nil || len(b) > 250 {
		t.Fatalf("a fresh tombstone has %d bytes: %v", len(b), err)
	}
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Expired).check(p.flight().Overlap, "a late report of another effect is still flagged")
}

func TestHazard36_ARestartedHolderIsAStranger(t *testing.T) {
	restarted := flight.Claim{Epoch: 1, Revision: 11, Session: "A after its restart"}
	p := newPlay(t, hold).do(open(1, nonce1), func(*world) flight.Command {
		return openOf(soloKey, flight.Policy{}, restarted, nonce1, fp1)
	}).expect(flight.Doubtful, flight.InDoubt)
	p.check(p.flight().AttemptCount == 1, "it adopts nothing")
}

func TestHazard39_AStaleDriverStartsNothing(t *testing.T) {
	w := newWorld(sagaKey, stepKey, undoKey)
	say := func(want flight.Decision, c flight.Command) {
		t.Helper()
		next, reply, err := w.step(c)
		if err != nil || reply.Decision != want {
			t.Fatalf("%s: answered %v, want %v: %v", describe(c), reply.Decision, want, err)
		}
		w = next
	}
	start := func(k flight.Key, driver int) flight.Command {
		return &flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp1, Driver: w.issued[0][driver-1].token}}
	}
	turn := func(driver int) flight.Command {
		return &flight.Turn{Key: sagaKey, Generation: 1, Token: w.issued[0][driver-1].token}
	}
	say(flight.Proceed, openOf(sagaKey, sagaPolicy, claims[0], nonce1, fp1))
	say(flight.Proceed, openOf(sagaKey, sagaPolicy, claims[1], nonce2, fp1)) // the first driver is paused
	say(flight.Fenced, start(stepKey, 1))
	say(flight.Fenced, start(undoKey, 2))
	say(flight.Accepted, start(stepKey, 2))
	say(flight.Fenced, turn(1))
	say(flight.Accepted, turn(2))
	say(flight.Accepted, turn(2))
	say(flight.Accepted, start(undoKey, 2))
	say(flight.Fenced, openOf(stepKey, hold, claims[0], nonce1, fp1)) // no forward step opens any more
}

func TestHazard40_AVoidedStepIsNeverOpened(t *testing.T) {
	newPlay(t, hold).do(seal, open(1, nonce1)).expect(flight.Replay, flight.StateCancelled)
	newPlay(t, hold).do(submit, seal, open(1, nonce1)).expect(flight.Replay, flight.StateCancelled)
	newPlay(t, hold).do(seal, func(*world) flight.Command {
		return reportOf(soloKey, attemptRef{1, flight.Token{Epoch: 1, Revision: 1, Number: 1}}, flight.Succeeded, "x")
	}).expect(flight.Fenced, flight.StateCancelled)
}

// TestResolve_ARepeatIsTheSameDecision: who settles a doubt by another receipt than the one that settled it is not told that
// theirs was taken.
func TestResolve_ARepeatIsTheSameDecision(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), recoverBy(2)).expect(flight.Doubtful, flight.InDoubt)
	seen := p.flight().Version
	happened := func(id string, body flight.Blob) say {
		return func(*world) flight.Command {
			return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Verb: flight.Happened, ExternalID: id, Body: body, Who: "ann", Why: "asked them"}
		}
	}
	text := bodies["x"]
	text.ContentType = "application/x-other"
	p.do(happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
	p.do(happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
	p.do(happened("y", bodies["x"])).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", bodies["y"])).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", flight.Blob{})).expect(flight.Precluded, flight.StateSucceeded)
	p.do(happened("x", text)).expect(flight.Precluded, flight.StateSucceeded)
	redact := func(*world) flight.Command {
		return &flight.Redact{Key: soloKey, Generation: 1, Who: "ann", Why: "asked to"}
	}
	p.do(redact, happened("x", bodies["x"])).expect(flight.Accepted, flight.StateSucceeded)
}

func TestHazard43_ThePersonAndTheZombieDecideInLogOrder(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), recoverBy(2)).expect(flight.Doubtful, flight.InDoubt)
	seen := p.flight().Version
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Accepted, flight.StateSucceeded)
	p.do(func(*world) flight.Command {
		return &flight.Resolve{Key: soloKey, Generation: 1, Version: seen, Verb: flight.Happened, ExternalID: "x", Body: bodies["x"]}
	}).expect(flight.Precluded, flight.StateSucceeded).check(p.flight().Receipt.ExternalID == "y", "the report came first")

	p = newPlay(t, hold).do(open(1, nonce1), recoverBy(2), resolve(flight.Fail), report(1, flight.Succeeded, "y"))
	p.expect(flight.Fenced, flight.StateFailed).check(p.flight().Overlap && len(p.flight().Evidence) == 1, "the person came first, and was wrong")
}
