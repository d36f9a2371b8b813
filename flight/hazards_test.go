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
func TestHazard1_AnEndedSessionOpensNothing(t *testing.T) {
	for _, policy := range []flight.Policy{hold, resend, verify} {
		p := newPlay(t, policy).do(open(1, nonce1), ended(1), open(2, nonce2))
		fence, state := p.flight().Fence, p.flight().State
		p.do(openAs(func(o *flight.Open) { o.Nonce = flight.Nonce{7} }, 1, nonce2)).expect(flight.SessionEnded, state)
		p.do(open(1, nonce1)).expect(flight.Fenced, state)
		require.Equal(t, fence, p.flight().Fence)
	}
	newPlay(t, hold).do(ended(1), open(1, nonce1)).expect(flight.SessionEnded, flight.Absent)
}

func TestHazard3_AnAttemptWithoutProofStaysInDoubtForEver(t *testing.T) {
	newPlay(t, hold).do(open(1, nonce1), ended(1), after(1000*time.Hour), ended(1), submit, cancel, wakeUp, free, retry, expire).
		expect(flight.Precluded, flight.InDoubt)
}

func TestHazard4_TheDefaultAfterACrashIsHold(t *testing.T) {
	newPlay(t, flight.Policy{}).do(open(1, nonce1), ended(1), open(2, nonce2)).expect(flight.Doubtful, flight.InDoubt)
}

func TestHazard5_ALateReportIsEvidenceAndAnotherEffectIsFlagged(t *testing.T) {
	superseded := []say{open(1, nonce1), ended(1), open(2, nonce2)}
	p := newPlay(t, resend).do(superseded...).do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Running)
	p.check(len(p.flight().Evidence) == 1 && !p.flight().Overlap, "stored; there is no receipt to compare it with yet")
	p.do(report(2, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(p.flight().Overlap && p.flight().Receipt.ExternalID == "x", "the overlap is raised when the receipt is stored")

	p = newPlay(t, resend).do(superseded...).do(report(2, flight.Succeeded, "x"), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.StateSucceeded).check(!p.flight().Overlap, "the same effect is not an overlap")
	p.do(report(1, flight.Succeeded, "y")).check(p.flight().Overlap, "another effect is an overlap")

	p = newPlay(t, resend).do(superseded...).do(report(2, flight.Refused, ""), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.StateFailed).check(p.flight().Overlap, "a success against a refusal is an overlap")
}

func TestHazard5_OverlapAcrossGenerations(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), free, open(2, nonce2), report(1, flight.Succeeded, "x"))
	p.expect(flight.Fenced, flight.Running).check(!p.flight().Overlap, "a repeat of the old generation's receipt")
	p.do(report(1, flight.Succeeded, "y")).check(p.flight().Overlap && p.flight().Receipt == nil, "another effect of the old generation")
}

// Neither another claim in etcd nor the end of the session fences the attempt: only an Open moves the fence.
func TestHazard6_ALateReportCountsUntilAnotherAttemptOpens(t *testing.T) {
	p := newPlay(t, verify).do(open(1, nonce1), open(2, nonce2)).expect(flight.Busy, flight.Running)
	p.do(ended(1), after(settle), open(2, nonce2)).expect(flight.Look, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.do(open(2, nonce2)).expect(flight.Replay, flight.StateSucceeded)
}

func TestHazard7_AGrantThatCameTooLateIsAbandoned(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), abandon(nonce1)).expect(flight.Accepted, flight.Queued)
	p.check(!p.flight().Tainted() && p.flight().Counted == 0, "nothing was sent")
	p.do(open(2, nonce2)).expect(flight.Proceed, flight.Running)

	p = newPlay(t, hold).do(open(1, nonce1), ended(1), abandon(nonce1)).expect(flight.Accepted, flight.Queued)
	p.check(!p.flight().Tainted(), "nothing was sent, although the attempt was marked lost meanwhile")
}

func TestHazard8_AnOpenOfUnknownOutcomeIsAskedAgainOrGivenUp(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), open(1, nonce1)).expect(flight.Proceed, flight.Running)
	p.check(p.flight().AttemptCount == 1, "one attempt")
	p.do(abandon(nonce1), open(1, nonce1)).expect(flight.Fenced, flight.Queued)
	newPlay(t, hold).do(abandon(nonce1), open(1, nonce1)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(after(26*time.Second), open(1, nonce1)).expect(flight.OpenExpired, flight.Absent)
}

func TestHazard9_ARepeatedReportIsAcceptedAndAnotherReceiptIsNot(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(len(p.flight().Evidence) == 0, "a repeat is not evidence")
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.StateSucceeded)
	p.check(p.flight().Receipt.ExternalID == "x" && p.flight().Overlap, "the first receipt is kept, and an overlap is raised")
}

func TestHazard10_EveryCommandMayCommitTwice(t *testing.T) {
	// script repeats every command and checks the repeat; this test checks the answers.
	p := newPlay(t, verify).do(submit, submit).expect(flight.Accepted, flight.Queued)
	p.do(open(1, nonce1), open(1, nonce1)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Unknown, ""), report(1, flight.Unknown, "")).expect(flight.Accepted, flight.Running)
	p.check(p.flight().Doubts == 1, "one tainting attempt")
	p.do(after(settle), open(2, nonce2), open(2, nonce2)).expect(flight.Look, flight.Running)
	p.check(p.last.Probe == 2, "one look-up")
	p.do(ended(2), ended(2)).expect(flight.Accepted, flight.Running)
	p.do(cancel, cancel).expect(flight.Accepted, flight.Running)
	p.do(verdict(flight.DidNotHappen, 0), verdict(flight.DidNotHappen, 0)).expect(flight.Replay, flight.StateCancelled)
	p.do(func(*world) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} },
		func(*world) flight.Command { return &flight.Retry{Key: soloKey, Generation: 1} }).expect(flight.Accepted, flight.Queued)
	p.check(p.flight().Generation == 2, "one new generation")
}

func TestHazard11_TwoAskersUnderOneSession(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), open(1, nonce2)).expect(flight.Busy, flight.Running)
	p.check(p.flight().AttemptCount == 1, "one attempt")
}

// A new call, also under the same session, has its own nonce. The goroutine of the previous attempt is fenced like any other
// caller.
func TestHazard12_ANewAttemptOfTheSameSessionFencesTheOldOne(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), report(1, flight.Unknown, ""), open(1, nonce2)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Running)
	p.do(open(1, nonce1)).expect(flight.Fenced, flight.Running)
}

// A node that reaches etcd but not the ledger holds a key only by an open attempt: its claim blocks no other caller.
func TestHazard14_AHolderCutOffFromTheLedgerBlocksNobody(t *testing.T) {
	p := newPlay(t, hold).do(open(1, nonce1)).expect(flight.Proceed, flight.Running) // another node may have the claim
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p = newPlay(t, hold).do(open(1, nonce1), ended(1), report(1, flight.Succeeded, "x"))
	p.expect(flight.Accepted, flight.StateSucceeded).check(!p.flight().Tainted(), "its spooled report removes the taint")
}

func TestHazard16_AHungHolderIsReplacedWhenItsTimeIsOver(t *testing.T) {
	p := newPlay(t, flight.Policy{Recovery: flight.Verify, AttemptTimeout: timeout})
	p.do(open(1, nonce1), after(20499*time.Millisecond), wakeUp).expect(flight.Busy, flight.Running) // its session lives
	p.check(p.last.Wait == time.Millisecond, "Wait is the remaining time")
	p.do(after(time.Millisecond), wakeUp).expect(flight.Accepted, flight.Running)
	p.check(p.flight().Looking() && p.flight().Newest().Lost, "the outcome is unknown, never not_done")
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)

	p = newPlay(t, flight.Policy{Recovery: flight.Resend, AttemptTimeout: timeout})
	p.do(open(1, nonce1), after(20499*time.Millisecond), open(2, nonce2)).expect(flight.Busy, flight.Running)
	p.do(after(time.Millisecond), open(2, nonce2)).expect(flight.Proceed, flight.Running)
	newPlay(t, hold).do(open(1, nonce1), after(time.Hour), wakeUp).expect(flight.Busy, flight.Running) // no time-out was declared
}

func TestHazard20_SessionsOfAnEtcdThatLostItsPastOpenNothing(t *testing.T) {
	low := flight.Session{ID: "low", Revision: 5, Epoch: 1}
	openUnder := func(x flight.Session, n flight.Nonce) say {
		return func(*world) flight.Command { return openOf(soloKey, flight.Policy{}, x, n, fp1) }
	}
	endedIn := func(epoch uint32) say { return endedAs(func(c *flight.Ended) { c.Epoch = epoch }, 1) }
	p := newPlay(t, resend).do(open(1, nonce1)).do(openUnder(low, nonce2)).expect(flight.Busy, flight.Running)
	p.do(endedAs(func(c *flight.Ended) { c.ReadRevision = 5 }, 1)).expect(flight.Fenced, flight.Running) // the read predates the session
	raise := func(*world) flight.Command { return &flight.RaiseEpoch{From: 1, Hold: 10 * time.Second} }
	low.Epoch = 2
	p.do(raise, openUnder(low, nonce2)).expect(flight.Busy, flight.Running) // the old attempt may still be in progress
	p.check(p.last.Wait == 10*time.Second, "the operator's hold")
	p.do(endedIn(1)).expect(flight.Fenced, flight.Running)
	p.do(endedIn(2)).expect(flight.Fenced, flight.Running)
	p.do(open(3, nonce2)).expect(flight.SessionEnded, flight.Running) // a session of an old epoch opens nothing
	p.do(after(10*time.Second), endedIn(2)).expect(flight.Accepted, flight.Queued)
	p.do(openUnder(low, nonce2)).expect(flight.Proceed, flight.Running)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Running)

	p = newPlay(t, resend).do(open(1, nonce1), raise, after(10*time.Second), openUnder(low, nonce2)).expect(flight.Proceed, flight.Running)
	p.check(p.flight().AttemptCount == 2, "the hold has expired: no proof is needed")

	later := flight.Wake{At: start.Add(time.Hour), Callback: true}
	p = newPlay(t, resend).do(open(1, nonce1), suspend(1, later), raise, after(10*time.Second), openUnder(low, nonce2)).expect(flight.Busy, flight.Waiting)
	p.check(p.flight().OpenAttempt() != nil, "an attempt that waits for its callback needs no session")
}

// The etcd lease of an ended session exists again in a restored etcd. The ledger remembers that the session has ended.
func TestHazard21_ASessionThatLivesAgainOpensNothing(t *testing.T) {
	p := newPlay(t, resend).do(open(1, nonce1), ended(1), open(2, nonce2), report(2, flight.NotDone, "")).expect(flight.Accepted, flight.Queued)
	p.do(openAs(func(o *flight.Open) { o.Nonce, o.NotAfter = flight.Nonce{7}, start.Add(time.Second) }, 1, nonce1)).expect(flight.SessionEnded, flight.Queued)
	p.do(report(1, flight.Succeeded, "x")).expect(flight.Fenced, flight.Queued)
}
