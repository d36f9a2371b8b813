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

// TestRules is the table of the rules. Each line has the earlier commands, the command, its answer and the flight's state
// after it.
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
		{"Submit creates a ready flight", hold, nil, submit, flight.Accepted, flight.Queued},
		{"Submit with a delay creates a scheduled flight", flight.Policy{RunAfter: settle}, nil, submit, flight.Accepted, flight.Scheduled},
		{"Submit where an approval is required", flight.Policy{Approval: true}, nil, submit, flight.Unapproved, flight.AwaitingApproval},
		{"Submit of a flight that is over", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, submit, flight.Replay, flight.StateSucceeded},
		{"Submit of a flight in doubt", hold, lost, submit, flight.Doubtful, flight.InDoubt},

		{"Open creates the flight and opens it", hold, nil, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open of a ready flight", hold, []say{submit}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open of a scheduled flight is busy", flight.Policy{RunAfter: settle}, []say{submit}, open(1, nonce1), flight.Busy, flight.Scheduled},
		{"Open of a scheduled flight that is due", flight.Policy{RunAfter: settle}, []say{submit, after(settle)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open of a flight that awaits approval", flight.Policy{Approval: true}, nil, open(1, nonce1), flight.Unapproved, flight.AwaitingApproval},
		{"Open where another attempt is open", resend, []say{open(1, nonce1)}, open(2, nonce2), flight.Busy, flight.Running},
		{"Open where another attempt of the same session is open", resend, []say{open(1, nonce1)}, open(1, nonce2), flight.Busy, flight.Running},
		{"Open again with the same nonce gets the first answer", hold, []say{open(1, nonce1)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open again with the same nonce under another session", hold, []say{open(1, nonce1)}, open(2, nonce1), flight.Proceed, flight.Running},
		{"Open again with the same nonce under an ended session, while its attempt is open", hold, []say{open(1, nonce1), ended(2)}, open(2, nonce1), flight.Proceed, flight.Running},
		{"Open again with the same nonce after NotAfter", hold, []say{open(1, nonce1), after(26 * time.Second)}, open(1, nonce1), flight.Proceed, flight.Running},
		{"Open again after the attempt ended opens nothing", hold, []say{open(1, nonce1), report(1, flight.NotDone, "")}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"Open again after the attempt ended and past its NotAfter is fenced, not expired", hold, []say{open(1, nonce1), report(1, flight.NotDone, ""), after(26 * time.Second)}, open(1, nonce1), flight.Fenced, flight.Queued},
		{"Open after a loss under hold", hold, lost, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open after a loss under hold, repeated", hold, []say{open(1, nonce1), ended(1), open(2, nonce2)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open after a loss under hold, repeated after a person's decision", hold, []say{open(1, nonce1), ended(1), open(2, nonce2), resolve(flight.DidNotHappen)}, open(2, nonce2), flight.Fenced, flight.Queued},
		{"Open again in doubt, of the attempt that was lost", hold, lost, open(2, nonce1), flight.Fenced, flight.InDoubt},
		{"Open after a loss under resend", resend, lost, open(2, nonce2), flight.Proceed, flight.Running},
		{"Open after a loss under verify, before the settle delay", verify, lost, open(2, nonce2), flight.Busy, flight.Running},
		{"Open after a loss under verify, after the settle delay", verify, looked[:3], open(2, nonce2), flight.Look, flight.Running},
		{"Open after a loss past the window", resendFor, []say{open(1, nonce1), after(window), ended(1)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},
		{"Open past its NotAfter", hold, []say{after(26 * time.Second)}, open(1, nonce1), flight.OpenExpired, flight.Absent},
		{"Open that would be valid for too long", hold, nil, open(1, nonce3), flight.OpenExpired, flight.Absent},
		{"Copy of an Open that was valid for too long", hold, []say{open(1, nonce3), after(settle * 3)}, open(1, nonce3), flight.Fenced, flight.Absent},
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
		{"Report after the attempt was marked lost", hold, lost, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},

		{"Abandon frees the flight", hold, []say{open(1, nonce1)}, abandon(nonce1), flight.Accepted, flight.Queued},
		{"Abandon counts no retry", with2(hold), []say{open(1, nonce1), abandon(nonce1), open(1, nonce2)}, report(2, flight.NotDone, ""), flight.Accepted, flight.Queued},
		{"Abandon before the Open comes", hold, []say{abandon(nonce1)}, open(1, nonce1), flight.Fenced, flight.Absent},
		{"Abandon of another nonce", hold, []say{open(1, nonce1)}, abandon(nonce2), flight.Accepted, flight.Running},
		{"Open with an abandoned nonce", hold, []say{open(1, nonce1), abandon(nonce2), abandon(nonce1)}, open(1, nonce2), flight.Fenced, flight.Queued},
		{"Abandon of an Open that has expired", hold, []say{after(26 * time.Second)}, abandon(nonce1), flight.Accepted, flight.Absent},
		{"Abandon of an Open that would be valid for too long", hold, []say{abandon(nonce3), after(settle * 3)}, open(1, nonce3), flight.Fenced, flight.Absent},
		{"Abandon of an Open that would be valid for hours", hold, nil, abandonAs(func(a *flight.Abandon) { a.NotAfter = start.Add(2 * time.Hour) }, nonce1), flight.OpenExpired, flight.Absent},
		{"Abandon of another store epoch", hold, []say{open(1, nonce1)}, abandonAs(func(a *flight.Abandon) { a.StoreEpoch = 2 }, nonce1), flight.Fenced, flight.Running},
		{"Abandon after the attempt was marked lost", hold, lost, abandon(nonce1), flight.Accepted, flight.Queued},
		{"Abandon after the attempt was marked lost, during a look-up", verify, looked, abandon(nonce1), flight.Accepted, flight.Queued},
		{"Abandon of a reported attempt changes nothing", hold, []say{open(1, nonce1), report(1, flight.Unknown, "")}, abandon(nonce1), flight.Accepted, flight.InDoubt},
		{"Abandon of an attempt that waits for its callback", hold, []say{open(1, nonce1), suspend(1, callback)}, abandon(nonce1), flight.Fenced, flight.Waiting},
		{"Abandon of a saga asleep changes nothing", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, abandon(nonce1), flight.Accepted, flight.Waiting},
		{"Abandon of an older attempt", resend, []say{open(1, nonce1), ended(1), open(2, nonce2)}, abandon(nonce1), flight.Accepted, flight.Running},

		{"EndSession under hold", hold, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.InDoubt},
		{"EndSession under resend", resend, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.Queued},
		{"EndSession under verify", verify, []say{open(1, nonce1)}, ended(1), flight.Accepted, flight.Running},
		{"EndSession of another session", hold, []say{open(1, nonce1)}, ended(2), flight.Accepted, flight.Running},
		{"EndSession by a read from before the session was created", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.ReadRevision = 9 }, 1), flight.Fenced, flight.Running},
		{"EndSession by a guard key of another lease epoch", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.Epoch = 2 }, 1), flight.Fenced, flight.Running},
		{"EndSession by a read of an etcd that has lost data", hold, []say{open(1, nonce1), recorded(3)}, endedAs(func(c *flight.Ended) { c.Counter = 2 }, 1), flight.Fenced, flight.Running},
		{"EndSession by a read with the recorded counter", hold, []say{open(1, nonce1), recorded(3)}, endedAs(func(c *flight.Ended) { c.Counter = 3 }, 1), flight.Accepted, flight.InDoubt},
		{"EndSession of another store epoch", hold, []say{open(1, nonce1)}, endedAs(func(c *flight.Ended) { c.StoreEpoch = 2 }, 1), flight.Fenced, flight.Running},
		{"EndSession of an attempt that waits for its callback", hold, []say{open(1, nonce1), suspend(1, callback)}, ended(1), flight.Accepted, flight.Waiting},
		{"WithdrawSession of a session that opened nothing", hold, []say{open(1, nonce1)}, withdraw(2), flight.Accepted, flight.Running},
		{"WithdrawSession of a session whose attempt is open", hold, []say{open(2, nonce1)}, withdraw(2), flight.Busy, flight.Running},
		{"WithdrawSession of a session that asks the provider", verify, looked, withdraw(2), flight.Busy, flight.Running},
		{"WithdrawSession of another store epoch", hold, nil, func(*world) flight.Command {
			return &flight.Withdraw{Key: soloKey, Session: "B", StoreEpoch: 2}
		}, flight.Fenced, flight.Absent},
		{"WakeUp before the time-out is over", timed, []say{open(1, nonce1), after(20 * time.Second)}, wakeUp, flight.Busy, flight.Running},
		{"WakeUp after the time-out", timed, []say{open(1, nonce1), after(20500 * time.Millisecond)}, wakeUp, flight.Doubtful, flight.InDoubt},
		{"Open after the time-out", timed, []say{open(1, nonce1), after(20500 * time.Millisecond)}, open(2, nonce2), flight.Doubtful, flight.InDoubt},

		{"Finding: it happened", verify, looked, verdict(flight.Happened, 0), flight.Accepted, flight.StateSucceeded},
		{"Finding: it did not happen", verify, looked, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.Queued},
		{"Open with the nonce of a finished look-up", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), verdict(flight.DidNotHappen, 0)}, open(2, nonce2), flight.Fenced, flight.Queued},
		{"Finding: inconclusive", verify, looked, verdict(flight.NoVerb, 0), flight.Accepted, flight.Running},
		{"Finding: inconclusive too often", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), verdict(flight.NoVerb, 0), after(settle), look(4)}, verdict(flight.NoVerb, 0), flight.Accepted, flight.InDoubt},
		{"Finding for an earlier look-up", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), after(30 * time.Second), look(4)}, verdict(flight.Happened, 1), flight.Fenced, flight.Running},
		{"Finding for a look-up that was not assigned", verify, lost, verdict(flight.Happened, 0), flight.Fenced, flight.Running},
		{"Open during a look-up, repeated by the assigned caller", verify, looked, open(3, nonce2), flight.Look, flight.Running},
		{"Open during a look-up by another caller", verify, looked, look(4), flight.Busy, flight.Running},
		{"Open during a look-up after the assigned session has ended", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), ended(2)}, look(4), flight.Look, flight.Running},
		{"Open during a look-up after the assigned caller gave up", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), abandon(nonce2)}, look(4), flight.Look, flight.Running},
		{"Open during a look-up after the assigned caller's time is over", verify, []say{open(1, nonce1), ended(1), after(settle), open(2, nonce2), after(30 * time.Second)}, look(4), flight.Look, flight.Running},

		{"Suspend puts a saga to sleep", sagaPolicy, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Accepted, flight.Waiting},
		{"Suspend is not for other flights", hold, []say{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.Fenced, flight.Running},
		{"Suspend of a cancelled saga does not let it sleep", sagaPolicy, []say{open(1, nonce1), cancel}, suspend(1, flight.Wake{}), flight.Accepted, flight.Queued},
		{"Wake of a saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, wakeUp, flight.Accepted, flight.Queued},
		{"Open of a sleeping saga", sagaPolicy, []say{open(1, nonce1), suspend(1, flight.Wake{})}, open(2, nonce2), flight.Busy, flight.Waiting},
		{"Suspend for a callback", hold, []say{open(1, nonce1)}, suspend(1, callback), flight.Accepted, flight.Waiting},
		{"Open of another caller before the callback's deadline", hold, []say{open(1, nonce1), suspend(1, callback)}, open(2, nonce2), flight.Busy, flight.Waiting},
		{"Open repeated while the attempt waits for its callback", hold, []say{open(1, nonce1), suspend(1, callback)}, open(1, nonce1), flight.Fenced, flight.Waiting},
		{"WakeUp after the callback's deadline", hold, []say{open(1, nonce1), suspend(1, callback), after(10 * time.Second)}, wakeUp, flight.Doubtful, flight.InDoubt},
		{"Report by the callback", hold, []say{open(1, nonce1), suspend(1, callback)}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},

		{"Cancel of a ready flight", hold, []say{submit}, cancel, flight.Accepted, flight.StateCancelled},
		{"Cancel of a running flight is recorded", hold, []say{open(1, nonce1)}, cancel, flight.Accepted, flight.Running},
		{"Report of success after a cancel", hold, []say{open(1, nonce1), cancel}, report(1, flight.Succeeded, "x"), flight.Accepted, flight.StateSucceeded},
		{"Report of not_done after a cancel", hold, []say{open(1, nonce1), cancel}, report(1, flight.NotDone, ""), flight.Accepted, flight.StateCancelled},
		{"Report of unknown after a cancel", resend, []say{open(1, nonce1), cancel}, report(1, flight.Unknown, ""), flight.Accepted, flight.InDoubt},
		{"Finding of no effect after a cancel", verify, []say{open(1, nonce1), cancel, ended(1), after(settle), open(2, nonce2)}, verdict(flight.DidNotHappen, 0), flight.Accepted, flight.StateCancelled},
		{"Cancel of a tainted flight", resend, []say{open(1, nonce1), report(1, flight.Unknown, "")}, cancel, flight.Accepted, flight.InDoubt},
		{"Cancel of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, cancel, flight.Precluded, flight.StateSucceeded},

		{"Resolve: it happened", hold, lost, resolve(flight.Happened), flight.Accepted, flight.StateSucceeded},
		{"Resolve: it did not happen", hold, lost, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not happen, with exhausted retries", flight.Policy{Retry: flight.RetryPolicy{Attempts: 1, Within: settle}}, []say{open(1, nonce1), after(settle), ended(1)}, resolve(flight.DidNotHappen), flight.Accepted, flight.Queued},
		{"Resolve: it did not happen, after a cancel", hold, []say{open(1, nonce1), cancel, ended(1)}, resolve(flight.DidNotHappen), flight.Accepted, flight.StateCancelled},
		{"Resolve: fail", hold, lost, resolve(flight.Fail), flight.Accepted, flight.StateFailed},
		{"Resolve of a flight that is not in doubt", hold, []say{open(1, nonce1)}, resolve(flight.Happened), flight.Precluded, flight.Running},
		{"Resolve with a finding of an approval", hold, lost, resolve(flight.Approved), flight.Precluded, flight.InDoubt},

		{"Approve", flight.Policy{Approval: true}, []say{submit}, decide(flight.Approved), flight.Accepted, flight.Queued},
		{"Reject", flight.Policy{Approval: true}, []say{submit}, decide(flight.Rejected), flight.Accepted, flight.StateCancelled},
		{"Reject after an approval", flight.Policy{Approval: true}, []say{submit, decide(flight.Approved)}, decide(flight.Rejected), flight.Precluded, flight.Queued},
		{"Retry of a flight that failed without a receipt", with2(hold), []say{open(1, nonce1), report(1, flight.NotDone, ""), open(1, nonce2), report(2, flight.NotDone, "")}, retry, flight.Accepted, flight.Queued},
		{"Retry of a cancelled flight", hold, []say{submit, cancel}, retry, flight.Accepted, flight.Queued},
		{"Retry of a refusal", hold, []say{open(1, nonce1), report(1, flight.Refused, "")}, retry, flight.Precluded, flight.StateFailed},
		{"Retry of a flight in progress", hold, []say{open(1, nonce1)}, retry, flight.Precluded, flight.Running},
		{"Free of a flight that ended", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, free, flight.Accepted, flight.Absent},
		{"Free of a tombstone", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains), expire}, free, flight.Accepted, flight.Absent},
		{"Free of a flight in doubt", hold, lost, free, flight.Precluded, flight.InDoubt},
		{"Seal of a key that was never used", hold, nil, seal, flight.Accepted, flight.StateCancelled},
		{"Open of a sealed key", hold, []say{seal}, open(1, nonce1), flight.Replay, flight.StateCancelled},
		{"Free of a sealed key", hold, []say{seal}, free, flight.Precluded, flight.StateCancelled},
		{"Retry of a sealed key", hold, []say{seal}, retry, flight.Precluded, flight.StateCancelled},
		{"Free of a sealed key's tombstone", hold, []say{seal, after(31 * 24 * time.Hour), expire}, free, flight.Precluded, flight.Expired},
		{"Seal of a key that was opened", hold, []say{open(1, nonce1)}, seal, flight.Precluded, flight.Running},
		{"Expire before the retention is over", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x")}, expire, flight.Precluded, flight.StateSucceeded},
		{"Expire of a flight in progress", hold, []say{open(1, nonce1), after(retains)}, expire, flight.Precluded, flight.Running},
		{"Expire", hold, []say{open(1, nonce1), report(1, flight.Succeeded, "x"), after(retains)}, expire, flight.Accepted, flight.Expired},
	}
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			newPlay(t, l.policy).do(l.given...).do(l.when).expect(l.answer, l.state)
		})
	}
}

// TestTaint_IsSticky: only knowledge of the outcome removes the taint.
func TestDoubtSticks(t *testing.T) {
	lost := []say{open(1, nonce1), ended(1), open(2, nonce2)} // the first attempt is lost, the second is open under resend
	t.Run("connection refused until the retries are spent", func(t *testing.T) {
		newPlay(t, with2(resend)).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("retries are spent, and the provider can be asked", func(t *testing.T) {
		p := newPlay(t, resendLook).do(lost...).do(report(2, flight.NotDone, "")).expect(flight.Accepted, flight.Running)
		p.check(p.flight().Looking(), "a look-up is due").do(after(settle), look(4)).expect(flight.Look, flight.Running)
		p.do(verdict(flight.Happened, 0)).expect(flight.Accepted, flight.StateSucceeded)
	})
	t.Run("refused inside the window answers all attempts", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(report(2, flight.Refused, "")).expect(flight.Accepted, flight.StateFailed)
	})
	t.Run("refused outside the window answers one attempt", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(after(window), report(2, flight.Refused, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("not done outside the window", func(t *testing.T) {
		newPlay(t, resendFor).do(lost...).do(after(window), report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("cancelled", func(t *testing.T) {
		newPlay(t, resend).do(lost...).do(cancel, report(2, flight.NotDone, "")).expect(flight.Accepted, flight.InDoubt)
	})
	t.Run("a later report of the attempt removes the taint", func(t *testing.T) {
		newPlay(t, hold).do(open(1, nonce1), ended(1), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.Queued)
	})
	t.Run("a saga's driver may refuse after another was lost", func(t *testing.T) {
		newPlay(t, sagaPolicy).do(lost...).do(report(2, flight.Refused, "")).expect(flight.Accepted, flight.StateFailed)
	})
}

// TestRetryPolicy: the time of the retry after a not_done report.
func TestRetryPolicy(t *testing.T) {
	p := newPlay(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: 4 * time.Second, MaxBackoff: 10 * time.Second}})
	p.do(open(1, nonce1), report(1, flight.NotDone, "")).expect(flight.Accepted, flight.Scheduled)
	pause := p.flight().NotBefore.Until(p.w.header.Now)
	p.check(pause >= 2*time.Second && pause <= 4*time.Second, "the first pause is between half and all of MinBackoff")
	p.do(open(1, nonce2)).expect(flight.Busy, flight.Scheduled)
	p.check(p.last.Wait == pause, "Wait is the remaining time")

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

// recordGuard records a counter of the guard key.
func recorded(counter uint64) say {
	return func(*world) flight.Command { return &flight.RecordGuard{Epoch: 1, Counter: counter} }
}
