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
	timed := flight.Policy{AttemptTimeout: timeout}
	lost := []say{open(1, nonce1), ended(1)}
	looked := []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2)}
	conflicting := func(o *flight.Open) { o.Submission.Fingerprint = fp2 }
	lines := []line{
		{"Submit makes a queued flight", hold, nil, submit, flight.Accepted, flight.Queued},
		{"Submit with a delay makes a scheduled one", flight.Policy{RunAfter: settle}, nil, submit, flight.Accepted, flight.Scheduled},
		{"Submit where an approval is required", flight.Policy{Approval: true}, nil, submit, flight.Unapproved, flight.AwaitingApproval},
		{"Submit answers what is there", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, submit, flight.Replay, flight.StateSucceeded},
		{"Submit of a flight in doubt", hold, lost, submit, flight.Doubtful, flight.InDoubt},

		{"Open makes the flight and opens it", hold, nil, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open takes a queued flight", hold, []say{submit}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open waits for a scheduled one", flight.Policy{RunAfter: settle}, []say{submit}, open(1, nonce1), flight.Busy, flight.Scheduled},
		{"Open takes a scheduled one that is due", flight.Policy{RunAfter: settle}, []say{submit, after(settle)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open waits for an approval", flight.Policy{Approval: true}, nil, open(1, nonce1), flight.Unapproved, flight.AwaitingApproval},
		{"Open where another attempt is open", resend, []say{open(1, nonce1)}, open(2, nonce2), flight.Busy, flight.Running},
		{"also where it is of the same session", resend, []say{open(1, nonce1)}, open(1, nonce2), flight.Busy, flight.Running},
		{"Open again with the same nonce gets the first answer", hold, []say{open(1, nonce1)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"also under another session", hold, []say{open(1, nonce1)}, open(2, nonce1), flight.Proceed, flight.Running},
		{"also under one that has ended, while its attempt is open", hold, []say{open(1, nonce1), ended(2)}, open(2, nonce1), flight.Proceed, flight.Running},
		{"also after NotAfter", hold, []say{open(1, nonce1), after(26 * time.Second)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open again after the attempt ended opens nothing", hold, []say{open(1, nonce1), report(1, flight.NotDone, "")}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"also past its NotAfter: something was opened", hold, []say{open(1, nonce1), report(1, flight.NotDone, ""), after(26 * time.Second)}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"Open after a loss under hold", hold, lost, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"whose repeat is answered so, too", hold, []say{open(1, nonce1), ended(1), open(2, nonce2)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"and which opens nothing after a person has decided", hold, []say{open(1, nonce1), ended(1), open(2, nonce2), resolve(flight.DidNotHappen)}, open(2, nonce2), flight.Fenced, flight.Queued},
		{"Open again in doubt, of the attempt that was lost", hold, lost, open(2, nonce1), flight.Fenced, flight.InDoubt},
		{"Open after a loss under resend", resend, lost, open(2, nonce2), flight.Proceed, flight.Running},
		{"Open after a loss under verify waits to look", verify, lost, open(2, nonce2), flight.Busy, flight.Running},
		{"and looks after the settle delay", verify, looked[:3], open(2, nonce2), flight.Look, flight.Running},
		{"Open after a loss past the window", resendFor, []say{open(1, nonce1), after(window), ended(1)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open past its NotAfter", hold, []say{after(26 * time.Second)}, open(1, nonce1), flight.OpenExpired, flight.Absent},
		{"Open that would be valid for too long", hold, nil, open(1, nonce3), flight.OpenExpired, flight.Absent},
		{"whose copy opens nothing either, when it would not be any more", hold, []say{open(1, nonce3), after(settle * 3)}, open(1, nonce3), flight.Fenced, flight.Absent},
		{"Open that would be valid for hours", hold, nil, openAs(func(o *flight.Open) { o.NotAfter = start.Add(2 * time.Hour) }, 1, nonce1), flight.OpenExpired, flight.Absent},
		{"Open under a session that has ended", hold, []say{ended(1)}, open(1, nonce1), flight.SessionEnded, flight.Absent},
		{"Open under a session that was withdrawn", hold, []say{withdraw(2)}, open(2, nonce1), flight.SessionEnded, flight.Absent},
		{"Open under a session of another lease epoch", hold, nil, openAs(func(o *flight.Open) { o.Session.Epoch = 2 }, 1, nonce1), flight.SessionEnded, flight.Absent},
		{"Open of another store epoch", hold, nil, openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce1), flight.Fenced, flight.Absent},
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
		{"Report to a key that was never used", hold, nil, lostReport(1, 1, flight.Unknown), flight.Fenced, flight.Absent},
		{"Report of an older attempt", resend, []say{open(1, nonce1), ended(1), open(2, nonce2)}, report(1, flight.Succeeded, "x"), flight.Fenced, flight.Running},
		{"Report after the attempt was concluded to be lost", hold, lost, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},

		{"Abandon frees the flight", hold, []say{open(1, nonce1)}, abandon(nonce1), flight.Accepted, flight.Queued},
		{"Abandon counts no retry", with2(hold), []say{open(1, nonce1), abandon(nonce1), open(1, nonce2)}, report(2, flight.NotDone, ""), flight.Accepted, flight.Queued},
		{"Abandon before the Open comes", hold, []say{abandon(nonce1)}, open(1, nonce1), flight.Fenced, flight.Absent},
		{"Abandon of another nonce", hold, []say{open(1, nonce1)}, abandon(nonce2), flight.Accepted, flight.Running},
		{"which then opens nothing", hold, []say{open(1, nonce1), abandon(nonce2), abandon(nonce1)}, open(1, nonce2), flight.Fenced, flight.Queued},
		{"Abandon of an Open that has expired", hold, []say{after(26 * time.Second)}, abandon(nonce1), flight.Accepted, flight.Absent},
		{"Abandon of an Open that would be valid for too long", hold, []say{abandon(nonce3), after(settle * 3)}, open(1, nonce3), flight.Fenced, flight.Absent},
		{"Abandon of an Open that would be valid for hours", hold, nil, abandonAs(func(a *flight.Abandon) { a.NotAfter = start.Add(2 * time.Hour) }, nonce1), flight.OpenExpired, flight.Absent},
		{"Abandon of another store epoch", hold, []say{open(1, nonce1)}, abandonAs(func(a *flight.Abandon) { a.StoreEpoch = 2 }, nonce1), flight.Fenced, flight.Running},
		{"Abandon after the attempt was concluded to be lost", hold, lost, abandon(nonce1), flight.Accepted, flight.Queued},
		{"also where the provider is being asked", verify, looked, abandon(nonce1), flight.Accepted, flight.Queued},
		{"Abandon of a reported attempt changes nothing", hold, []say{open(1, nonce1), report(1, flight.Unknown, "")}, abandon(nonce1), flight.Accepted, flight.InDoubt},
		{"Abandon of an attempt that waits for its callback: it has acted", hold, []say{open(1, nonce1), suspend(1, callback)}, abandon(nonce1), flight.Fenced, flight.Waiting},
		{"Abandon of a saga asleep changes nothing", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, abandon(nonce1), flight.Accepted, flight.Waiting},
		{"Abandon of an older attempt", resend, []say{open(1, nonce1), ended(1), open(2, nonce2)}, abandon(nonce1), flight.Accepted, flight.Running},

		{"Ended under hold", hold, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.InDoubt},
		{"Ended under resend", resend, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.Queued},
		{"Ended under verify", verify, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.Running},
		{"Ended of another session", hold, []say{open(1, nonce1)}, ended(2), flight.Accepted, flight.Running},
		{"Ended by a read from before the session was made", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.ReadRevision = 9 }, 1), flight.Fenced, flight.Running},
		{"Ended by a guard key of another lease epoch", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.Epoch = 2 }, 1), flight.Fenced, flight.Running},
		{"Ended by a read of an etcd that has lost its past", hold, []say{open(1, nonce1), recorded(3)}, endedAs(func(c *flight.Ended) { c.Counter = 2 }, 1), flight.Fenced, flight.Running},
		{"Ended by a read with the recorded counter", hold, []say{open(1, nonce1), recorded(3)}, endedAs(func(c *flight.Ended) { c.Counter = 3 }, 1), flight.Accepted, flight.InDoubt},
		{"Ended of another store epoch", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.StoreEpoch = 2 }, 1), flight.Fenced, flight.Running},
		{"Ended of an attempt that waits for its callback", hold, []say{open(1, nonce1), suspend(1, callback)}, ended(1), flight.Accepted, flight.Waiting},
		{"Withdraw of a session that opened nothing", hold, []say{open(1, nonce1)}, withdraw(2), flight.Accepted, flight.Running},
		{"Withdraw of a session whose attempt is open", hold, []say{open(2, nonce1)}, withdraw(2), flight.Busy, flight.Running},
		{"Withdraw of a session that asks the provider", verify, looked, withdraw(2), flight.Busy, flight.Running},
		{"Withdraw of another store epoch", hold, nil, func(*world) flight.Command {
			return &flight.Withdraw{Key: soloKey, Session: "B", StoreEpoch: 2}
		}, flight.Fenced, flight.Absent},
		{"WakeUp before the time-out is over", timed, []say{open(1, nonce1), after(20 * time.Second)}, wakeUp, flight.Busy, flight.Running},
		{"WakeUp when it is over", timed, []say{open(1, nonce1), after(20500 * time.Millisecond)}, wakeUp, flight.Doubtful, flight.InDoubt},
		{"Open when it is over", timed, []say{open(1, nonce1), after(20500 * time.Millisecond)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},

		{"Verdict: it happened", verify, looked, verdict(flight.Happened, 0), flight.Accepted, flight.StateSucceeded},
		{"Verdict: it did not", verify, looked, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.Queued},
		{"after which the nonce of the look-up opens nothing", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), verdict(flight.DidNotHappen, 0)}, open(2, nonce2), flight.Fenced, flight.Queued},
		{"Verdict: could not find out", verify, looked, verdict(flight.NoVerb, 0), flight.Accepted, flight.Running},
		{"Verdict: could not find out too often", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), verdict(flight.NoVerb, 0), after(settle), look(4)}, verdict(flight.NoVerb, 0), flight.Accepted, flight.InDoubt},
		{"Verdict of an earlier probe", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), after(30 * time.Second), look(4)}, verdict(flight.Happened, 1), flight.Fenced, flight.Running},
		{"Verdict of a probe that nobody was sent for", verify, lost, verdict(flight.Happened, 0), flight.Fenced, flight.Running},
		{"Look again by the same caller", verify, looked, open(3, nonce2), flight.Look, flight.Running},
		{"Look by another caller while the first one asks", verify, looked, look(4), flight.Busy, flight.Running},
		{"also after the first one's session has ended", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), ended(2)}, look(4), flight.Look, flight.Running},
		{"also after the first one has given up", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), abandon(nonce2)}, look(4), flight.Look, flight.Running},
		{"also after the first one's time is over", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), after(30 * time.Second)}, look(4), flight.Look, flight.Running},

		{"Suspend puts a saga to sleep", sagaPolicy, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Accepted, flight.Waiting},
		{"Suspend is not for other flights", hold, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Fenced, flight.Running},
		{"Suspend of a cancelled saga does not let it sleep", sagaPolicy, []say{open(1, nonce1), cancel}, suspend(1, flight.Wake{}), flight.Accepted, flight.Queued},
		{"Wake of a saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, wakeUp, flight.Accepted, flight.Queued},
		{"Open of a sleeping saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, open(2, nonce2), flight.Busy, flight.Waiting},
		{"Suspend for a callback", hold, []say{open(1, nonce1)}, suspend(1, callback), flight.Accepted, flight.Waiting},
		{"no other attempt opens before its time", hold, []say{open(1, nonce1), suspend(1, callback)}, open(2, nonce2), flight.Busy, flight.Waiting},
		{"a repeat of its Open does not act again", hold, []say{open(1, nonce1), suspend(1, callback)}, open(1, nonce1), flight.Fenced, flight.Waiting},
		{"then its outcome is unknown", hold, []say{open(1, nonce1), suspend(1, callback), after(10 * time.Second)}, wakeUp, flight.Doubtful, flight.InDoubt},
		{"the callback may report", hold, []say{open(1, nonce1), suspend(1, callback)}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},

		{"Cancel of a queued flight", hold, []say{submit}, cancel, flight.Accepted, flight.StateCancelled},
		{"Cancel of a running one is a mark", hold, []say{open(1, nonce1)}, cancel, flight.Accepted, flight.Running},
		{"after which success stands", hold, []say{open(1, nonce1), cancel}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},
		{"after which not done is cancelled", hold, []say{open(1, nonce1), cancel}, report(1, flight.NotDone, ""), flight.Accepted, flight.StateCancelled},
		{"after which unknown is not sent again", resend, []say{open(1, nonce1), cancel}, report(1, flight.Unknown, ""), flight.Accepted, flight.InDoubt},
		{"after which a look-up that finds nothing cancels", verify, []say{open(1, nonce1), cancel, ended(1), after(settle), open(2, nonce2)}, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.StateCancelled},
		{"Cancel of a tainted flight", resend, []say{open(1, nonce1), report(1, flight.Unknown, "")}, cancel, flight.Accepted, flight.InDoubt},
		{"Cancel of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, cancel, flight.Precluded, flight.StateSucceeded},

		{"Resolve: it happened", hold, lost, resolve(flight.Happened), flight.Accepted, flight.StateSucceeded},
		{"Resolve: it did not", hold, lost, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not, though the retries were spent", flight.Policy{Retry: flight.RetryPolicy{Attempts: 1, Within: settle}}, []say{open(1, nonce1), after(settle), ended(1)}, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not, after a cancel", hold, []say{open(1, nonce1), cancel, ended(1)}, resolve(flight.DidNotHappen), flight.Accepted, flight.StateCancelled},
		{"Resolve: fail", hold, lost, resolve(flight.Fail), flight.Accepted, flight.StateFailed},
		{"Resolve of a flight that is not in doubt", hold, []say{open(1, nonce1)}, resolve(flight.Happened), flight.Precluded, flight.Running},
		{"Resolve with no verb of its own", hold, lost, resolve(flight.Approved), flight.Precluded, flight.InDoubt},

		{"Approve", flight.Policy{Approval: true}, []say{submit}, decide(flight.Approved), flight.Accepted, flight.Queued},
		{"Reject", flight.Policy{Approval: true}, []say{submit}, decide(flight.Rejected), flight.Accepted, flight.StateCancelled},
		{"the first decision stands", flight.Policy{Approval: true}, []say{submit, decide(flight.Approved)}, decide(flight.Rejected), flight.Precluded, flight.Queued},
		{"Retry of what failed without a receipt", with2(hold), []say{open(1, nonce1), report(1, flight.NotDone, ""), open(1, nonce2), report(2, flight.NotDone, "")}, retry, flight.Accepted, flight.Queued},
		{"Retry of what was cancelled", hold, []say{submit, cancel}, retry, flight.Accepted, flight.Queued},
		{"Retry of a refusal", hold, []say{open(1, nonce1), report(1, flight.Refused, "")}, retry, flight.Precluded, flight.StateFailed},
		{"Retry of a flight that lives", hold, []say{open(1, nonce1)}, retry, flight.Precluded, flight.Running},
		{"Free of what ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, free, flight.Accepted, flight.Absent},
		{"Free of a tombstone", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire}, free, flight.Accepted, flight.Absent},
		{"Free of a flight in doubt", hold, lost, free, flight.Precluded, flight.InDoubt},
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

// TestDoubtSticks: nothing that does not know ends a doubt.
func TestDoubtSticks(t *testing.T) {
	lost := []say{open(1, nonce1), ended(1), open(2, nonce2)} // the first attempt is lost, the second is open under resend
	t.Run("connection refused until the retries are spent", func(t *testing.T) {
		newPlay(t, with2(resend)).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("the same where the provider can be asked", func(t *testing.T) {
		p := newPlay(t, resendLook).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.Running)
		p.check(p.flight().Looking(), "it should look").do(after(settle), look(4)).expect(flight.Look, flight.Running)
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
		newPlay(t, hold).do(open(1, nonce1), ended(1), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.Queued)
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

// recorded notes a counter of the guard key.
func recorded(counter uint64) say {
	return func(*world) flight.Command { return &flight.RecordGuard{Epoch: 1, Counter: counter} }
}
