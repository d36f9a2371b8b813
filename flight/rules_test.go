package flight_test

import (
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
)

var (
	hold       = flight.Policy{}
	resend     = flight.Policy{Recovery: flight.Resend}
	resendFor  = flight.Policy{Recovery: flight.Resend, ProviderWindow: window}
	verify     = flight.Policy{Recovery: flight.Verify, LookTries: 2}
	resendLook = flight.Policy{Recovery: flight.Resend, Lookup: true, Retry: flight.RetryPolicy{Attempts: 2}}
	sagaPolicy = flight.Policy{Saga: true}
	callback   = flight.Wake{At: start.Add(10 * time.Second), Callback: true}
)

func with2(p flight.Policy) flight.Policy { p.Retry = flight.RetryPolicy{Attempts: 2}; return p }

// TestRules is the table of the rules, a line or more for each row: after what, which command gets which answer and
// leaves the flight how.
func TestRules(t *testing.T) {
	type line struct {
		name   string
		policy flight.Policy
		given  []say
		when   say
		answer flight.Decision
		state  flight.State
	}
	conflicting := func(o *flight.Open) { o.Submission.Fingerprint = fp2 }
	lines := []line{
		{"Submit makes a queued flight", hold, nil, submit, flight.Accepted, flight.Queued},
		{"Submit with a delay makes a scheduled one", flight.Policy{RunAfter: settle}, nil, submit, flight.Accepted, flight.Scheduled},
		{"Submit where an approval is required", flight.Policy{Approval: true}, nil, submit, flight.Unapproved, flight.AwaitingApproval},
		{"Submit answers what is there", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, submit, flight.Replay, flight.StateSucceeded},
		{"Submit of a flight in doubt", hold, []say{open(1, nonce1), recoverBy(2)}, submit, flight.Doubtful, flight.InDoubt},

		{"Open makes the flight and opens it", hold, nil, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open takes a queued flight", hold, []say{submit}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open waits for a scheduled one", flight.Policy{RunAfter: settle}, []say{submit}, open(1, nonce1), flight.Busy, flight.Scheduled},
		{"Open takes a scheduled one that is due", flight.Policy{RunAfter: settle}, []say{submit, after(settle)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open waits for an approval", flight.Policy{Approval: true}, nil, open(1, nonce1), flight.Unapproved, flight.AwaitingApproval},
		{"Open by the same claim is not its turn", hold, []say{open(1, nonce1)}, open(1, nonce2), flight.Busy, flight.Running},
		{"Open again with the same nonce gets the first answer", hold, []say{open(1, nonce1)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open again under a later claim of the session too", hold, []say{open(1, nonce1)}, open(3, nonce1), flight.Proceed, flight.Running},
		{"Open again after the attempt ended opens nothing", hold, []say{open(1, nonce1), report(1, flight.NotDone, "")}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"Open again after NotAfter gets the first answer", hold, []say{open(1, nonce1), after(26 * time.Second)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open by a newer claim under hold", hold, []say{open(1, nonce1)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open by a newer claim under resend", resend, []say{open(1, nonce1)}, open(2, nonce2), flight.Proceed, flight.Running},
		{"Open by a newer claim under verify waits to look", verify, []say{open(1, nonce1)}, open(2, nonce2), flight.Busy, flight.Running},
		{"and looks after the settle delay", verify, []say{open(1, nonce1), open(2, nonce2), after(settle)}, open(2, nonce2), flight.Look, flight.Running},
		{"Open by a newer claim past the window", resendFor, []say{open(1, nonce1), after(window)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open by an older claim", resend, []say{open(2, nonce1)}, open(1, nonce2), flight.Fenced, flight.Running},
		{"Open by an older claim of a queued flight", resend, []say{open(2, nonce1), report(1, flight.NotDone, "")}, open(1, nonce2), flight.Fenced, flight.Queued},
		{"Open by an older claim of a freed key makes nothing", hold, []say{open(2, nonce1), report(1, flight.Succeeded, "x"), free}, open(1, nonce2), flight.Fenced, flight.Absent},
		{"Open past its NotAfter", hold, []say{after(26 * time.Second)}, open(1, nonce1), flight.Fenced, flight.Absent},
		{"Open that would be valid for too long", hold, nil, openAs(func(o *flight.Open) { o.NotAfter = start.Add(61 * time.Second) }, 1, nonce1), flight.Fenced, flight.Absent},
		{"Open of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Refused, "")}, open(2, nonce2), flight.Replay, flight.StateFailed},
		{"Open of a tombstone", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire}, open(2, nonce2), flight.Gone, flight.Expired},
		{"Open with another input", hold, []say{open(1, nonce1)}, openAs(conflicting, 2, nonce2), flight.Conflict, flight.Running},
		{"Open with another input of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, openAs(conflicting, 2, nonce2), flight.Conflict, flight.StateSucceeded},
		{"Open with another input of a tombstone", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire}, openAs(conflicting, 2, nonce2), flight.Conflict, flight.Expired},
		{"Open where the key alone decides", hold, []say{open(1, nonce1)}, openAs(func(o *flight.Open) { o.Submission.Fingerprint = flight.NoFingerprint }, 1, nonce2), flight.Busy, flight.Running},

		{"Report of success", hold, []say{open(1, nonce1)}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},
		{"Report of a refusal", hold, []say{open(1, nonce1)}, report(1, flight.Refused, ""), flight.Accepted, flight.StateFailed},
		{"Report of not done, caller-run", hold, []say{open(1, nonce1)}, report(1, flight.NotDone, ""), flight.Accepted, flight.Queued},
		{"Report of not done with retries left", with2(hold), []say{open(1, nonce1)}, report(1, flight.NotDone, ""), flight.Accepted, flight.Queued},
		{"Report of not done with retries spent", with2(hold), []say{open(1, nonce1), report(1, flight.NotDone, ""), open(1, nonce2)}, report(2, flight.NotDone, ""), flight.Accepted, flight.StateFailed},
		{"Report of unknown under hold", hold, []say{open(1, nonce1)}, report(1, flight.Unknown, ""), flight.Accepted, flight.InDoubt},
		{"Report of unknown under resend", resend, []say{open(1, nonce1)}, report(1, flight.Unknown, ""), flight.Accepted, flight.Queued},
		{"Report of unknown under verify", verify, []say{open(1, nonce1)}, report(1, flight.Unknown, ""), flight.Accepted, flight.Running},
		{"Report to a key that was never used", hold, nil, say(func(*world) flight.Command {
			return reportOf(soloKey, attemptRef{1, flight.Token{Number: 1}}, flight.Succeeded, "x")
		}), flight.Missing, flight.Absent},

		{"Abandon frees the flight", hold, []say{open(1, nonce1)}, abandon(1), flight.Accepted, flight.Queued},
		{"Abandon counts no retry", with2(hold), []say{open(1, nonce1), abandon(1), open(1, nonce2)}, report(2, flight.NotDone, ""), flight.Accepted, flight.Queued},
		{"Abandon by nonce", hold, []say{open(1, nonce1)}, abandonNonce(sessA, nonce1), flight.Accepted, flight.Queued},
		{"Abandon before the Open comes", hold, []say{abandonNonce(sessA, nonce1)}, open(1, nonce1), flight.Fenced, flight.Absent},
		{"Abandon of an Open", hold, []say{open(1, nonce1)}, abandonOpen(1, nonce1), flight.Accepted, flight.Queued},
		{"Abandon of an Open that has not come, where another sending of it opened", hold, []say{open(3, nonce1)}, abandonOpen(1, nonce1), flight.Accepted, flight.Running},
		{"which then opens nothing", hold, []say{open(3, nonce1), abandonOpen(1, nonce1), abandon(1)}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"Abandon after the attempt was concluded to be lost", hold, []say{open(1, nonce1), recoverBy(2)}, abandon(1), flight.Accepted, flight.Queued},
		{"Abandon of a reported attempt changes nothing", hold, []say{open(1, nonce1), report(1, flight.Unknown, "")}, abandon(1), flight.Accepted, flight.InDoubt},
		{"A repeat of an Open that stands", hold, []say{open(1, nonce1)}, repeat(1, nonce1), flight.Proceed, flight.Running},
		{"A repeat opens nothing", hold, nil, repeat(1, nonce1), flight.Fenced, flight.Absent},
		{"nor in the place of what ended", hold, []say{open(1, nonce1), abandon(1)}, repeat(1, nonce1), flight.Fenced, flight.Queued},
		{"nor where a newer one stands", resend, []say{open(1, nonce1), open(2, nonce2)}, repeat(1, nonce1), flight.Fenced, flight.Running},
		{"Abandon by whoever opened it, after its repeat", hold, []say{open(1, nonce1), repeat(1, nonce1)}, abandon(1), flight.Fenced, flight.Running},
		{"and by its nonce", hold, []say{open(1, nonce1), repeat(1, nonce1)}, abandonNonce(sessA, nonce1), flight.Fenced, flight.Running},
		{"and where it was concluded to be lost", hold, []say{open(1, nonce1), repeat(1, nonce1), recoverBy(2)}, abandon(1), flight.Fenced, flight.InDoubt},
		{"but its caller may", hold, []say{open(1, nonce1), repeat(1, nonce1)}, byCaller(abandon(1)), flight.Accepted, flight.Queued},
		{"nor by anybody while it waits for its callback: it has acted", hold, []say{open(1, nonce1), suspend(1, callback)}, abandon(1), flight.Fenced, flight.Waiting},
		{"not by its nonce", hold, []say{open(1, nonce1), suspend(1, callback)}, abandonNonce(sessA, nonce1), flight.Fenced, flight.Waiting},
		{"and not by its caller, who holds nothing any more", hold, []say{open(1, nonce1), suspend(1, callback)}, byCaller(abandon(1)), flight.Fenced, flight.Waiting},
		{"Abandon of a saga asleep changes nothing", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, abandon(1), flight.Accepted, flight.Waiting},
		{"Abandon of an older attempt", resend, []say{open(1, nonce1), open(2, nonce2)}, abandon(1), flight.Fenced, flight.Running},

		{"Recover under hold", hold, []say{open(1, nonce1)}, recoverBy(2), flight.Doubtful, flight.InDoubt},
		{"Recover under resend", resend, []say{open(1, nonce1)}, recoverBy(2), flight.Accepted, flight.Queued},
		{"Recover under verify", verify, []say{open(1, nonce1)}, recoverBy(2), flight.Busy, flight.Running},
		{"Recover by the holder's own claim", hold, []say{open(1, nonce1)}, recoverBy(1), flight.Busy, flight.Running},
		{"Recover by an older claim", hold, []say{open(2, nonce1)}, recoverBy(1), flight.Fenced, flight.Running},
		{"Recover of a key that was never used", hold, nil, recoverBy(1), flight.Missing, flight.Absent},

		{"Verdict: it happened", verify, []say{open(1, nonce1), recoverBy(2), after(settle), recoverBy(2)}, verdict(flight.Happened, 0), flight.Accepted, flight.StateSucceeded},
		{"Verdict: it did not", verify, []say{open(1, nonce1), recoverBy(2), after(settle), recoverBy(2)}, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.Queued},
		{"Verdict: could not find out", verify, []say{open(1, nonce1), recoverBy(2), after(settle), recoverBy(2)}, verdict(flight.NoVerb, 0), flight.Accepted, flight.Running},
		{"Verdict: could not find out too often", verify, []say{open(1, nonce1), recoverBy(2), after(settle), recoverBy(2), verdict(flight.NoVerb, 0), after(settle), recoverBy(2)}, verdict(flight.NoVerb, 0), flight.Accepted, flight.InDoubt},
		{"Verdict of an earlier probe", verify, []say{open(1, nonce1), recoverBy(2), after(settle), recoverBy(2), recoverBy(3)}, verdict(flight.Happened, 1), flight.Fenced, flight.Running},
		{"Verdict of a probe that nobody was sent for", verify, []say{open(1, nonce1), recoverBy(2)}, verdict(flight.Happened, 0), flight.Fenced, flight.Running},
		{"Look by a claim older than the last looker's", verify, []say{open(1, nonce1), recoverBy(3), after(settle), recoverBy(3)}, recoverBy(2), flight.Fenced, flight.Running},

		{"Suspend puts a saga to sleep", sagaPolicy, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Accepted, flight.Waiting},
		{"Suspend is not for other flights", hold, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Fenced, flight.Running},
		{"Suspend of a cancelled saga does not let it sleep", sagaPolicy, []say{open(1, nonce1), cancel}, suspend(1, flight.Wake{}), flight.Accepted, flight.Queued},
		{"Wake of a saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, wakeUp, flight.Accepted, flight.Queued},
		{"Open of a sleeping saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, open(2, nonce2), flight.Busy, flight.Waiting},
		{"Suspend for a callback", hold, []say{open(1, nonce1)}, suspend(1, callback), flight.Accepted, flight.Waiting},
		{"a callback is nobody's to recover before its time", hold, []say{open(1, nonce1), suspend(1, callback)}, recoverBy(2), flight.Busy, flight.Waiting},
		{"a repeat of its Open does not act again", hold, []say{open(1, nonce1), suspend(1, callback)}, open(1, nonce1), flight.Fenced, flight.Waiting},
		{"then its outcome is unknown", hold, []say{open(1, nonce1), suspend(1, callback), after(10 * time.Second)}, wakeUp, flight.Doubtful, flight.InDoubt},
		{"the callback may report", hold, []say{open(1, nonce1), suspend(1, callback)}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},

		{"Cancel of a queued flight", hold, []say{submit}, cancel, flight.Accepted, flight.StateCancelled},
		{"Cancel of a running one is a mark", hold, []say{open(1, nonce1)}, cancel, flight.Accepted, flight.Running},
		{"after which success stands", hold, []say{open(1, nonce1), cancel}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},
		{"after which not done is cancelled", hold, []say{open(1, nonce1), cancel}, report(1, flight.NotDone, ""), flight.Accepted, flight.StateCancelled},
		{"after which unknown is not sent again", resend, []say{open(1, nonce1), cancel}, report(1, flight.Unknown, ""), flight.Accepted, flight.InDoubt},
		{"after which a look-up that finds nothing cancels", verify, []say{open(1, nonce1), cancel, recoverBy(2), after(settle), recoverBy(2)}, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.StateCancelled},
		{"Cancel of a tainted flight", resend, []say{open(1, nonce1), report(1, flight.Unknown, "")}, cancel, flight.Accepted, flight.InDoubt},
		{"Cancel of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, cancel, flight.Precluded, flight.StateSucceeded},

		{"Resolve: it happened", hold, []say{open(1, nonce1), recoverBy(2)}, resolve(flight.Happened), flight.Accepted, flight.StateSucceeded},
		{"Resolve: it did not", hold, []say{open(1, nonce1), recoverBy(2)}, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not, though the retries were spent", flight.Policy{Retry: flight.RetryPolicy{Attempts: 1, Within: settle}}, []say{open(1, nonce1), after(settle), recoverBy(2)}, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not, after a cancel", hold, []say{open(1, nonce1), cancel, recoverBy(2)}, resolve(flight.DidNotHappen), flight.Accepted, flight.StateCancelled},
		{"Resolve: fail", hold, []say{open(1, nonce1), recoverBy(2)}, resolve(flight.Fail), flight.Accepted, flight.StateFailed},
		{"Resolve of a flight that is not in doubt", hold, []say{open(1, nonce1)}, resolve(flight.Happened), flight.Precluded, flight.Running},
		{"Resolve with no verb of its own", hold, []say{open(1, nonce1), recoverBy(2)}, resolve(flight.Approved), flight.Precluded, flight.InDoubt},

		{"Approve", flight.Policy{Approval: true}, []say{submit}, decide(flight.Approved), flight.Accepted, flight.Queued},
		{"Reject", flight.Policy{Approval: true}, []say{submit}, decide(flight.Rejected), flight.Accepted, flight.StateCancelled},
		{"the first decision stands", flight.Policy{Approval: true}, []say{submit, decide(flight.Approved)}, decide(flight.Rejected), flight.Precluded, flight.Queued},
		{"Retry of what failed without a receipt", with2(hold), []say{open(1, nonce1), report(1, flight.NotDone, ""), open(1, nonce2), report(2, flight.NotDone, "")}, retry, flight.Accepted, flight.Queued},
		{"Retry of what was cancelled", hold, []say{submit, cancel}, retry, flight.Accepted, flight.Queued},
		{"Retry of a refusal", hold, []say{open(1, nonce1), report(1, flight.Refused, "")}, retry, flight.Precluded, flight.StateFailed},
		{"Retry of a flight that lives", hold, []say{open(1, nonce1)}, retry, flight.Precluded, flight.Running},
		{"Free of what ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, free, flight.Accepted, flight.Absent},
		{"Free of a tombstone", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire}, free, flight.Accepted, flight.Absent},
		{"Free of a flight in doubt", hold, []say{open(1, nonce1), recoverBy(2)}, free, flight.Precluded, flight.InDoubt},
		{"Seal of a key that was never used", hold, nil, seal, flight.Accepted, flight.StateCancelled},
		{"Open of a sealed key", hold, []say{seal}, open(1, nonce1), flight.Replay, flight.StateCancelled},
		{"Free of a sealed key", hold, []say{seal}, free, flight.Precluded, flight.StateCancelled},
		{"Retry of a sealed key", hold, []say{seal}, retry, flight.Precluded, flight.StateCancelled},
		{"Free of a sealed key's tombstone", hold, []say{seal, after(31 * 24 * time.Hour), expire}, free, flight.Precluded, flight.Expired},
		{"Seal of a key that was opened", hold, []say{open(1, nonce1)}, seal, flight.Precluded, flight.Running},
		{"Expire before the retention is over", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, expire, flight.Precluded, flight.StateSucceeded},
		{"Expire of a flight that lives", hold, []say{open(1, nonce1), after(retains)}, expire, flight.Precluded, flight.Running},
		{"Expire", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains)}, expire, flight.Accepted, flight.Expired},
	}
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			newPlay(t, l.policy).do(l.given...).do(l.when).expect(l.answer, l.state)
		})
	}
}

// TestDoubtSticks: nothing that does not know ends a doubt (DESIGN.md 2).
func TestDoubtSticks(t *testing.T) {
	lost := []say{open(1, nonce1), open(2, nonce2)} // the first attempt is lost, the second flies under resend
	t.Run("connection refused until the retries are spent", func(t *testing.T) {
		newPlay(t, with2(resend)).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("the same where the provider can be asked", func(t *testing.T) {
		p := newPlay(t, resendLook).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.Running)
		p.check(p.flight().Looking(), "it should look").do(after(settle), recoverBy(3)).expect(flight.Look, flight.Running)
		p.do(verdict(flight.Happened, 0)).expect(flight.Accepted, flight.StateSucceeded)
	})
	t.Run("refused inside the window is the answer to all attempts", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(report(2, flight.Refused, "")).expect(flight.Accepted, flight.StateFailed)
	})
	t.Run("refused outside the window is not", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(after(window), report(2, flight.Refused, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("not done outside the window", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(after(window), report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("cancelled", func(t *testing.T) {
		newPlay(t, resend).do(lost...).do(cancel, report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("the attempt's own later word does", func(t *testing.T) {
		newPlay(t, hold).do(open(1, nonce1), recoverBy(2), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.Queued)
	})
	t.Run("a saga's driver may refuse after another was lost", func(t *testing.T) {
		newPlay(t, sagaPolicy).do(lost...).do(report(2, flight.Refused, "")).expect(flight.Accepted, flight.StateFailed)
	})
}

// TestRetryPolicy: when a flight that was not done is tried again.
func TestRetryPolicy(t *testing.T) {
	p := newPlay(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: 4 * time.Second, MaxBackoff: 10 * time.Second}})
	p.do(open(1, nonce1), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.Scheduled)
	pause := p.flight().NotBefore.Until(p.w.header.Now)
	p.check(pause >= 2*time.Second && pause <= 4*time.Second, "the first pause is between half and all of MinBackoff")
	p.do(open(1, nonce2)).expect(flight.Busy, flight.Scheduled)
	p.check(p.last.Wait == pause, "Wait says how long")

	p = newPlay(t, hold).do(open(1, nonce1), func(w *world) flight.Command {
		r := reportOf(soloKey, w.issued[0][0], flight.NotDone, "")
		r.RetryAfter = 7 * time.Second
		return r
	}).expect(flight.Accepted, flight.Scheduled)
	p.check(p.flight().NotBefore == start.Add(7*time.Second), "Retry-After is honoured")

	p = newPlay(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: 9, Within: settle}})
	p.do(open(1, nonce1), after(settle), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.StateFailed)
}

func TestBackoff_DoublesAndIsTheSameEverywhere(t *testing.T) {
	r := flight.RetryPolicy{Attempts: 100, MinBackoff: time.Second, MaxBackoff: time.Minute}
	id := soloKey.FlightID()
	for n, base := 1, time.Second; n < 100; n, base = n+1, min(2*base, time.Minute) {
		if d := r.Backoff(id, n); d < base/2 || d > base || d != r.Backoff(id, n) {
			t.Fatalf("after %d attempts %v, want %v to %v", n, d, base/2, base)
		}
	}
	endless := flight.RetryPolicy{Attempts: 1, MinBackoff: 1, MaxBackoff: 1<<63 - 1}
	if d := endless.Backoff(id, 1000); d < 1<<61 {
		t.Fatalf("the longest pause overflowed to %v", d)
	}
}

// TestBounds: a flight keeps the newest attempts and the first evidence in full, and counts the rest.
func TestBounds(t *testing.T) {
	p := newPlay(t, resend)
	for i := range 3 * flight.MaxAttempts {
		c := flight.Claim{Epoch: 1, Revision: int64(10 + i), Session: sessA}
		p.do(func(*world) flight.Command {
			o := openOf(soloKey, flight.Policy{}, c, flight.Nonce{9, byte(i)}, fp1)
			o.NotAfter = start.Add(time.Second)
			return o
		}).expect(flight.Proceed, flight.Running)
	}
	f := p.flight()
	p.check(len(f.Attempts) == flight.MaxAttempts && f.AttemptCount == 3*flight.MaxAttempts && f.Doubts == f.AttemptCount-1, "attempts")
	for n := range 2 * flight.MaxAttempts {
		p.do(report(n+1, flight.Unknown, "")).expect(flight.Fenced, flight.Running)
	}
	f = p.flight()
	p.check(len(f.Evidence) == flight.MaxEvidence && f.EvidenceMore == flight.MaxAttempts, "evidence")
	p.do(report(1, flight.Succeeded, "y")).expect(flight.Fenced, flight.Running)
	p.do(report(3*flight.MaxAttempts, flight.Succeeded, "x")).expect(flight.Accepted, flight.StateSucceeded)
	p.check(p.flight().Overlap, "evidence of a success finds room")
}

// TestNonces: one that was spent stays so in the next generation, and behind a tombstone, while an Open may carry it.
func TestNonces(t *testing.T) {
	newPlay(t, hold).do(open(1, nonce2), report(1, flight.Succeeded, "x"), free, open(1, nonce2)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(open(1, nonce2), report(1, flight.Succeeded, "x"), after(retains), expire, free, open(1, nonce2)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(open(1, nonce1), report(1, flight.Succeeded, "x"), abandonNonce(sessB, nonce2), after(retains), expire, free, open(2, nonce2)).expect(flight.Fenced, flight.Absent)
	newPlay(t, hold).do(func(*world) flight.Command {
		return &flight.Abandon{Key: soloKey, Session: sessA, Nonce: nonce2, NotAfter: start.Add(2 * time.Minute)}
	}).expect(flight.Precluded, flight.Absent)
}

func TestHeader_CommandsWithoutAKey(t *testing.T) {
	v := flight.View{Header: flight.Header{Now: start}}
	v, r := flight.Apply(v, &flight.Bootstrap{Deployment: "one", Secret: []byte("s")})
	if h := v.Header; r.Decision != flight.Accepted || h.Deployment != "one" || h.LeaseEpoch != 1 || h.StoreEpoch != 1 {
		t.Fatalf("bootstrap: %v, %+v", r.Decision, h)
	}
	if again, r := flight.Apply(v, &flight.Bootstrap{Deployment: "two"}); r.Decision != flight.Accepted || again.Header.Deployment != "one" {
		t.Fatalf("a second bootstrap renamed the deployment: %+v", again.Header)
	}
	if v, r = flight.Apply(v, &flight.Tick{}); r.Decision != flight.Accepted || r.Changed || v.Flight != nil {
		t.Fatalf("a tick changed something: %+v", r)
	}
	if _, r = flight.Apply(v, &flight.RaiseEpoch{From: 2}); r.Decision != flight.Precluded {
		t.Fatalf("an epoch that is not there was left: %v", r.Decision)
	}
	v, _ = flight.Apply(v, &flight.RaiseEpoch{From: 1, Hold: time.Minute})
	if v, r = flight.Apply(v, &flight.RaiseEpoch{From: 1, Hold: time.Hour}); r.Decision != flight.Accepted || v.Header.LeaseEpoch != 2 || v.Header.EpochHold != start.Add(time.Minute) {
		t.Fatalf("a repeated RaiseEpoch: %v, %+v", r.Decision, v.Header)
	}
}
