package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// These tests cover the interleavings of lease and ledger that Apply alone decides. The number in a test's name is its row in
// docs/hazards.md.

// A opens, and its session ends; B opens; A resumes and opens again, under the ended session or by a delayed copy.
func TestHazard01_AnEndedSessionOpensNothing(t *testing.T) {
	for _, policy := range []flight.Policy{hold, resend, verify} {
		p := newScript(t, policy).run(open(1, nonce1), endSession(1), open(2, nonce2))
		fence, state := p.flight().Fence, p.flight().State
		p.run(openAs(func(o *flight.Open) { o.Nonce = flight.Nonce{7} }, 1, nonce2)).expect(flight.DecisionSessionEnded, state)
		p.run(open(1, nonce1)).expect(flight.DecisionFenced, state)
		require.Equal(t, fence, p.flight().Fence)
	}
	newScript(t, hold).run(endSession(1), open(1, nonce1)).expect(flight.DecisionSessionEnded, flight.StateAbsent)
}

func TestHazard03_AnAttemptWithoutProofStaysInDoubtForEver(t *testing.T) {
	newScript(t, hold).run(open(1, nonce1), endSession(1), afterTime(1000*time.Hour), endSession(1), submit, cancel, wakeUp, free, retry, expire).
		expect(flight.DecisionFailedPrecondition, flight.StateInDoubt)
}

func TestHazard04_TheDefaultAfterACrashIsHold(t *testing.T) {
	newScript(t, flight.Policy{}).run(open(1, nonce1), endSession(1), open(2, nonce2)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
}

func TestHazard05_ALateReportIsEvidenceAndAnotherEffectIsFlagged(t *testing.T) {
	superseded := []step{open(1, nonce1), endSession(1), open(2, nonce2)}
	p := newScript(t, resend).run(superseded...).run(report(1, flight.OutcomeSucceeded, "y")).expect(flight.DecisionFenced, flight.StateRunning)
	p.check(len(p.flight().Evidence) == 1 && !p.flight().Overlap, "stored; there is no receipt to compare it with yet")
	p.run(report(2, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(p.flight().Overlap && p.flight().Receipt.ExternalID == "x", "the overlap is raised when the receipt is stored")

	p = newScript(t, resend).run(superseded...).run(report(2, flight.OutcomeSucceeded, "x"), report(1, flight.OutcomeSucceeded, "x"))
	p.expect(flight.DecisionFenced, flight.StateSucceeded).check(!p.flight().Overlap, "the same effect is not an overlap")
	p.run(report(1, flight.OutcomeSucceeded, "y")).check(p.flight().Overlap, "another effect is an overlap")

	p = newScript(t, resend).run(superseded...).run(report(2, flight.OutcomeRefused, ""), report(1, flight.OutcomeSucceeded, "x"))
	p.expect(flight.DecisionFenced, flight.StateFailed).check(p.flight().Overlap, "a success against a refusal is an overlap")
}

func TestHazard05_OverlapAcrossGenerations(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), free, open(2, nonce2), report(1, flight.OutcomeSucceeded, "x"))
	p.expect(flight.DecisionFenced, flight.StateRunning).check(!p.flight().Overlap, "a repeat of the old generation's receipt")
	p.run(report(1, flight.OutcomeSucceeded, "y")).check(p.flight().Overlap && p.flight().Receipt == nil, "another effect of the old generation")
}

// Neither another claim in etcd nor the end of the session fences the attempt: only an Open moves the fence.
func TestHazard06_ALateReportCountsUntilAnotherAttemptOpens(t *testing.T) {
	p := newScript(t, verify).run(open(1, nonce1), open(2, nonce2)).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(endSession(1), afterTime(settleDelay), open(2, nonce2)).expect(flight.DecisionVerify, flight.StateRunning)
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.run(open(2, nonce2)).expect(flight.DecisionReplay, flight.StateSucceeded)
}

func TestHazard07_AGrantThatCameTooLateIsAbandoned(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), abandon(nonce1)).expect(flight.DecisionAccepted, flight.StateReady)
	p.check(!p.flight().Tainted() && p.flight().CountedAttempts == 0, "nothing was sent")
	p.run(open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)

	p = newScript(t, hold).run(open(1, nonce1), endSession(1), abandon(nonce1)).expect(flight.DecisionAccepted, flight.StateReady)
	p.check(!p.flight().Tainted(), "nothing was sent, although the attempt was marked lost meanwhile")
}

func TestHazard08_AnOpenOfUnknownOutcomeIsAskedAgainOrGivenUp(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), open(1, nonce1)).expect(flight.DecisionProceed, flight.StateRunning)
	p.check(p.flight().AttemptCount == 1, "one attempt")
	p.run(abandon(nonce1), open(1, nonce1)).expect(flight.DecisionFenced, flight.StateReady)
	newScript(t, hold).run(abandon(nonce1), open(1, nonce1)).expect(flight.DecisionFenced, flight.StateAbsent)
	newScript(t, hold).run(afterTime(26*time.Second), open(1, nonce1)).expect(flight.DecisionOpenExpired, flight.StateAbsent)
}

func TestHazard09_ARepeatedReportIsAcceptedAndAnotherReceiptIsNot(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(len(p.flight().Evidence) == 0, "a repeat is not evidence")
	p.run(report(1, flight.OutcomeSucceeded, "y")).expect(flight.DecisionFenced, flight.StateSucceeded)
	p.check(p.flight().Receipt.ExternalID == "x" && p.flight().Overlap, "the first receipt is kept, and an overlap is raised")

	p = newScript(t, resend).run(open(1, nonce1), report(1, flight.OutcomeUnknown, ""), open(2, nonce2), report(1, flight.OutcomeUnknown, ""))
	p.expect(flight.DecisionAccepted, flight.StateRunning).check(len(p.flight().Evidence) == 0, "a second copy of an accepted report is not evidence, also when another attempt is open")
	p.run(report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionFenced, flight.StateRunning).check(len(p.flight().Evidence) == 1, "another outcome is")

	many := func(first int) {
		for n := first; n <= first+flight.MaxAttempts; n++ {
			p.run(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{9, byte(n)}, start.Add(time.Second) }, 1+2*(n%2), nonce1), report(n, flight.OutcomeUnknown, ""))
		}
	}
	p = newScript(t, resend)
	many(1)
	p.run(report(1, flight.OutcomeUnknown, "")).expect(flight.DecisionAccepted, flight.StateReady)
	p.check(len(p.flight().Evidence) == 0, "nor is a copy of which so many attempts have followed that the flight does not know its attempt any more")
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionFenced, flight.StateReady).check(len(p.flight().Evidence) == 1, "a success always is")
	p.run(acceptRestore, lostReport(1, 1, flight.OutcomeUnknown)).expect(flight.DecisionAccepted, flight.StateInDoubt) // a restore may have lost its attempt

	p = newScript(t, resend).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), free)
	many(2)
	p.run(report(1, flight.OutcomeUnknown, "")).expect(flight.DecisionFenced, flight.StateReady).check(len(p.flight().Evidence) == 1, "one of an earlier generation is")
}

func TestHazard10_EveryCommandMayCommitTwice(t *testing.T) {
	// script repeats every command and checks the repeat; this test checks the answers.
	p := newScript(t, verify).run(submit, submit).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(open(1, nonce1), open(1, nonce1)).expect(flight.DecisionProceed, flight.StateRunning)
	p.run(report(1, flight.OutcomeUnknown, ""), report(1, flight.OutcomeUnknown, "")).expect(flight.DecisionAccepted, flight.StateRunning)
	p.check(p.flight().TaintingAttempts == 1, "one tainting attempt")
	p.run(afterTime(settleDelay), open(2, nonce2), open(2, nonce2)).expect(flight.DecisionVerify, flight.StateRunning)
	p.check(p.last.Verification == 2, "one look-up")
	p.run(endSession(2), endSession(2)).expect(flight.DecisionAccepted, flight.StateRunning)
	p.run(cancel, cancel).expect(flight.DecisionAccepted, flight.StateRunning)
	p.run(finding(flight.FindingNotHappened, 0), finding(flight.FindingNotHappened, 0)).expect(flight.DecisionReplay, flight.StateCancelled)
	p.run(func(*ledger) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} },
		func(*ledger) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} }).expect(flight.DecisionAccepted, flight.StateReady)
	p.check(p.flight().Generation == 2, "one new generation")
}

func TestHazard11_TwoAskersUnderOneSession(t *testing.T) {
	p := newScript(t, resend).run(open(1, nonce1), open(1, nonce2)).expect(flight.DecisionBusy, flight.StateRunning)
	p.check(p.flight().AttemptCount == 1, "one attempt")
}

// A new call, also under the same session, has its own nonce. The goroutine of the previous attempt is fenced like any other
// caller.
func TestHazard12_ANewAttemptOfTheSameSessionFencesTheOldOne(t *testing.T) {
	p := newScript(t, resend).run(open(1, nonce1), report(1, flight.OutcomeUnknown, ""), open(1, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(open(1, nonce1)).expect(flight.DecisionFenced, flight.StateRunning)
}

// A node that reaches etcd but not the ledger holds a key only by an open attempt: its claim blocks no other caller.
func TestHazard14_AHolderCutOffFromTheLedgerBlocksNobody(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1)).expect(flight.DecisionProceed, flight.StateRunning) // another node may have the claim
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p = newScript(t, hold).run(open(1, nonce1), endSession(1), report(1, flight.OutcomeSucceeded, "x"))
	p.expect(flight.DecisionAccepted, flight.StateSucceeded).check(!p.flight().Tainted(), "its spooled report removes the taint")
}

func TestHazard16_AHungHolderIsReplacedWhenItsTimeIsOver(t *testing.T) {
	p := newScript(t, flight.Policy{Recovery: flight.RecoveryVerify, AttemptTimeout: timeout})
	p.run(open(1, nonce1), afterTime(20499*time.Millisecond), wakeUp).expect(flight.DecisionBusy, flight.StateRunning) // its session lives
	p.check(p.last.Wait == time.Millisecond, "Wait is the remaining time")
	p.run(afterTime(time.Millisecond), wakeUp).expect(flight.DecisionAccepted, flight.StateRunning)
	p.check(p.flight().Verifying() && p.flight().Newest().Lost, "the outcome is unknown, never not_done")
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionAccepted, flight.StateSucceeded)

	p = newScript(t, flight.Policy{Recovery: flight.RecoveryResend, AttemptTimeout: timeout})
	p.run(open(1, nonce1), afterTime(20499*time.Millisecond), open(2, nonce2)).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(afterTime(time.Millisecond), open(2, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	newScript(t, hold).run(open(1, nonce1), afterTime(time.Hour), wakeUp).expect(flight.DecisionBusy, flight.StateRunning) // no time-out was declared
}

func TestHazard20_SessionsOfAnEtcdThatLostItsPastOpenNothing(t *testing.T) {
	low := flight.Session{ID: "low", Revision: 5, Epoch: 1}
	openUnder := func(x flight.Session, n flight.Nonce) step {
		return func(*ledger) flight.Command { return openOf(soloKey, flight.Policy{}, x, n, fp1) }
	}
	endedIn := func(epoch uint32) step { return endSessionAs(func(c *flight.EndSession) { c.Epoch = epoch }, 1) }
	p := newScript(t, resend).run(open(1, nonce1)).run(openUnder(low, nonce2)).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(endSessionAs(func(c *flight.EndSession) { c.ReadRevision = 5 }, 1)).expect(flight.DecisionFenced, flight.StateRunning) // the read predates the session
	raise := func(*ledger) flight.Command { return &flight.RaiseEpoch{From: 1, Hold: 10 * time.Second} }
	low.Epoch = 2
	p.run(raise, openUnder(low, nonce2)).expect(flight.DecisionBusy, flight.StateRunning) // the old attempt may still be in progress
	p.check(p.last.Wait == 10*time.Second, "the operator's hold")
	p.run(endedIn(1)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(endedIn(2)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(open(3, nonce2)).expect(flight.DecisionSessionEnded, flight.StateRunning) // a session of an old epoch opens nothing
	p.run(afterTime(10*time.Second), endedIn(2)).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(openUnder(low, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionFenced, flight.StateRunning)

	p = newScript(t, resend).run(open(1, nonce1), raise, afterTime(10*time.Second), openUnder(low, nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	p.check(p.flight().AttemptCount == 2, "the hold has expired: no proof is needed")

	later := flight.Wake{At: start.Add(time.Hour), Callback: true}
	p = newScript(t, resend).run(open(1, nonce1), suspend(1, later), raise, afterTime(10*time.Second), openUnder(low, nonce2)).expect(flight.DecisionBusy, flight.StateWaiting)
	p.check(p.flight().OpenAttempt() != nil, "an attempt that waits for its callback needs no session")
}

// The etcd lease of an ended session exists again in a restored etcd. The ledger remembers that the session has ended.
func TestHazard21_ASessionThatLivesAgainOpensNothing(t *testing.T) {
	p := newScript(t, resend).run(open(1, nonce1), endSession(1), open(2, nonce2), report(2, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateReady)
	p.run(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{7}, start.Add(time.Second) }, 1, nonce1)).expect(flight.DecisionSessionEnded, flight.StateReady)
	p.run(report(1, flight.OutcomeSucceeded, "x")).expect(flight.DecisionFenced, flight.StateReady)
}

// A step of the ledger's clock moves the end of each holder's time by exactly the step. run_at, not_after, the retention and
// the provider's window do not move.
func TestHazard25_StepMovesHoldersAlone(t *testing.T) {
	clockStep := func(w *ledger) flight.Command { return &flight.Tick{StepTo: w.header.Now.Add(40 * time.Second)} }
	timed, verify := flight.Policy{AttemptTimeout: timeout}, flight.Policy{Recovery: flight.RecoveryVerify}
	for name, c := range map[string]struct {
		policy flight.Policy
		begin  []step
		time   time.Duration // of the holder, from the last command of begin on
		end    step
		over   flight.Decision
	}{
		"an attempt":   {timed, []step{open(1, nonce1)}, timeout*11/10 + flight.PauseBound, wakeUp, flight.DecisionInDoubt},
		"a callback":   {flight.Policy{}, []step{open(1, nonce1), suspend(1, callback)}, 10 * time.Second, wakeUp, flight.DecisionInDoubt},
		"settle delay": {verify, []step{open(1, nonce1), endSession(1)}, settleDelay, verifyAs(9), flight.DecisionVerify},
		"a look-up":    {verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), verifyAs(8)}, 2 * flight.PauseBound, verifyAs(9), flight.DecisionVerify},
	} {
		t.Run(name, func(t *testing.T) {
			p := newScript(t, c.policy).run(c.begin...).run(clockStep, c.end)
			require.Equal(t, flight.DecisionBusy, p.last.Decision)
			p.run(afterTime(c.time-time.Millisecond), c.end)
			require.Equal(t, flight.DecisionBusy, p.last.Decision)
			p.run(clockStep, c.end)
			require.Equal(t, flight.DecisionBusy, p.last.Decision, "a second step")
			p.run(afterTime(time.Millisecond), c.end)
			require.Equal(t, c.over, p.last.Decision)
		})
	}
	newScript(t, flight.Policy{RunAfter: 30 * time.Second}).run(submit, clockStep, verifyAs(9)).expect(flight.DecisionProceed, flight.StateRunning)
	newScript(t, hold).run(clockStep, open(1, nonce1)).expect(flight.DecisionOpenExpired, flight.StateAbsent)
	newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), clockStep, expire).expect(flight.DecisionAccepted, flight.StateExpired)
	window := flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: 30 * time.Second}
	newScript(t, window).run(open(1, nonce1), endSession(1), clockStep, verifyAs(9)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	newScript(t, window).run(clockStep, open(1, nonce3), endSession(1), afterTime(29*time.Second), verifyAs(9)).expect(flight.DecisionInDoubt, flight.StateInDoubt)
}
