package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

var (
	hold       = flight.Policy{}
	resend     = flight.Policy{Recovery: flight.RecoveryResend}
	resendFor  = flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow}
	verify     = flight.Policy{Recovery: flight.RecoveryVerify, VerifyAttempts: 2}
	resendLook = flight.Policy{Recovery: flight.RecoveryResend, Lookup: true, Retry: flight.RetryPolicy{Attempts: 2}}
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
		given  []step
		when   step
		answer flight.Decision
		state  flight.State
	}
	timed := flight.Policy{AttemptTimeout: timeout}
	within := flight.Policy{Approval: true, ApprovalWithin: settleDelay}
	lost := []step{open(1, nonce1), endSession(1)}
	looked := []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2)}
	conflicting := func(o *flight.Open) { o.Submission.Fingerprint = fp2 }
	lines := []line{
		{"Submit creates a ready flight", hold, nil, submit, flight.DecisionAccepted, flight.StateReady},
		{"Submit with a delay creates a scheduled flight", flight.Policy{RunAfter: settleDelay}, nil, submit, flight.DecisionAccepted, flight.StateScheduled},
		{"Submit where an approval is required", flight.Policy{Approval: true}, nil, submit, flight.DecisionAwaitingApproval, flight.StateAwaitingApproval},
		{"Submit of a flight that is over", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, submit, flight.DecisionReplay, flight.StateSucceeded},
		{"Submit of a flight in doubt", hold, lost, submit, flight.DecisionInDoubt, flight.StateInDoubt},

		{"Open creates the flight and opens it", hold, nil, open(1, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open of a ready flight", hold, []step{submit}, open(1, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open of a scheduled flight is busy", flight.Policy{RunAfter: settleDelay}, []step{submit}, open(1, nonce1), flight.DecisionBusy, flight.StateScheduled},
		{"Open of a scheduled flight that is due", flight.Policy{RunAfter: settleDelay}, []step{submit, afterTime(settleDelay)}, open(1, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open of a flight that awaits approval", flight.Policy{Approval: true}, nil, open(1, nonce1), flight.DecisionAwaitingApproval, flight.StateAwaitingApproval},
		{"Open where another attempt is open", resend, []step{open(1, nonce1)}, open(2, nonce2), flight.DecisionBusy, flight.StateRunning},
		{"Open where another attempt of the same session is open", resend, []step{open(1, nonce1)}, open(1, nonce2), flight.DecisionBusy, flight.StateRunning},
		{"Open again with the same nonce gets the first answer", hold, []step{open(1, nonce1)}, open(1, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open again with the same nonce under another session", hold, []step{open(1, nonce1)}, open(2, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open again with the same nonce under an ended session, while its attempt is open", hold, []step{open(1, nonce1), endSession(2)}, open(2, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open again with the same nonce after NotAfter", hold, []step{open(1, nonce1), afterTime(26 * time.Second)}, open(1, nonce1), flight.DecisionProceed, flight.StateRunning},
		{"Open again after the attempt ended opens nothing", hold, []step{open(1, nonce1), report(1, flight.OutcomeNotDone, "")}, open(1, nonce1), flight.DecisionFenced, flight.StateReady},
		{"Open again after the attempt ended and past its NotAfter is fenced, not expired", hold, []step{open(1, nonce1), report(1, flight.OutcomeNotDone, ""), afterTime(26 * time.Second)}, open(1, nonce1), flight.DecisionFenced, flight.StateReady},
		{"Open after a loss under hold", hold, lost, open(2, nonce2), flight.DecisionInDoubt, flight.StateInDoubt},
		{"Open after a loss under hold, repeated", hold, []step{open(1, nonce1), endSession(1), open(2, nonce2)}, open(2, nonce2), flight.DecisionInDoubt, flight.StateInDoubt},
		{"Open after a loss under hold, repeated after a person's decision", hold, []step{open(1, nonce1), endSession(1), open(2, nonce2), resolve(flight.FindingNotHappened)}, open(2, nonce2), flight.DecisionFenced, flight.StateReady},
		{"Open again in doubt, of the attempt that was lost", hold, lost, open(2, nonce1), flight.DecisionFenced, flight.StateInDoubt},
		{"Open after a loss under resend", resend, lost, open(2, nonce2), flight.DecisionProceed, flight.StateRunning},
		{"Open after a loss under verify, before the settle delay", verify, lost, open(2, nonce2), flight.DecisionBusy, flight.StateRunning},
		{"Open after a loss under verify, after the settle delay", verify, looked[:3], open(2, nonce2), flight.DecisionVerify, flight.StateRunning},
		{"Open after a loss past the window", resendFor, []step{open(1, nonce1), afterTime(providerWindow), endSession(1)}, open(2, nonce2), flight.DecisionInDoubt, flight.StateInDoubt},
		{"Open past its NotAfter", hold, []step{afterTime(26 * time.Second)}, open(1, nonce1), flight.DecisionOpenExpired, flight.StateAbsent},
		{"Open that would be valid for too long", hold, nil, open(1, nonce3), flight.DecisionOpenExpired, flight.StateAbsent},
		{"Copy of an Open that was valid for too long", hold, []step{open(1, nonce3), afterTime(settleDelay * 3)}, open(1, nonce3), flight.DecisionFenced, flight.StateAbsent},
		{"Open that would be valid for hours", hold, nil, openAs(func(o *flight.Open) { o.NotAfter = start.Add(2 * time.Hour) }, 1, nonce1), flight.DecisionOpenExpired, flight.StateAbsent},
		{"Open under a session that has ended", hold, []step{endSession(1)}, open(1, nonce1), flight.DecisionSessionEnded, flight.StateAbsent},
		{"Open under a session that was withdrawn", hold, []step{withdrawSession(2)}, open(2, nonce1), flight.DecisionSessionEnded, flight.StateAbsent},
		{"Open under a session of another lease epoch", hold, nil, openAs(func(o *flight.Open) { o.Session.Epoch = 2 }, 1, nonce1), flight.DecisionSessionEnded, flight.StateAbsent},
		{"Open of another store epoch", hold, nil, openAs(func(o *flight.Open) { o.StoreEpoch = 2 }, 1, nonce1), flight.DecisionFenced, flight.StateAbsent},
		{"Open of a flight that ended", hold, []step{open(1, nonce1), report(1, flight.OutcomeRefused, "")}, open(2, nonce2), flight.DecisionReplay, flight.StateFailed},
		{"Open of a tombstone", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention), expire}, open(2, nonce2), flight.DecisionExpired, flight.StateExpired},
		{"Open with another input", hold, []step{open(1, nonce1)}, openAs(conflicting, 2, nonce2), flight.DecisionConflict, flight.StateRunning},
		{"Open with another input of a flight that ended", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, openAs(conflicting, 2, nonce2), flight.DecisionConflict, flight.StateSucceeded},
		{"Open with another input of a tombstone", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention), expire}, openAs(conflicting, 2, nonce2), flight.DecisionConflict, flight.StateExpired},
		{"Open where the key alone decides", hold, []step{open(1, nonce1)}, openAs(func(o *flight.Open) { o.Submission.Fingerprint = flight.NoFingerprint }, 1, nonce2), flight.DecisionBusy, flight.StateRunning},

		{"Report of success", hold, []step{open(1, nonce1)}, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionAccepted, flight.StateSucceeded},
		{"Report of a refusal", hold, []step{open(1, nonce1)}, report(1, flight.OutcomeRefused, ""), flight.DecisionAccepted, flight.StateFailed},
		{"Report of not done, caller-run", hold, []step{open(1, nonce1)}, report(1, flight.OutcomeNotDone, ""), flight.DecisionAccepted, flight.StateReady},
		{"Report of not done with retries left", with2(hold), []step{open(1, nonce1)}, report(1, flight.OutcomeNotDone, ""), flight.DecisionAccepted, flight.StateReady},
		{"Report of not done with retries spent", with2(hold), []step{open(1, nonce1), report(1, flight.OutcomeNotDone, ""), open(1, nonce2)}, report(2, flight.OutcomeNotDone, ""), flight.DecisionAccepted, flight.StateFailed},
		{"Report of unknown under hold", hold, []step{open(1, nonce1)}, report(1, flight.OutcomeUnknown, ""), flight.DecisionAccepted, flight.StateInDoubt},
		{"Report of unknown under resend", resend, []step{open(1, nonce1)}, report(1, flight.OutcomeUnknown, ""), flight.DecisionAccepted, flight.StateReady},
		{"Report of unknown under verify", verify, []step{open(1, nonce1)}, report(1, flight.OutcomeUnknown, ""), flight.DecisionAccepted, flight.StateRunning},
		{"Report to a key that was never used", hold, nil, lostReport(1, 1, flight.OutcomeNotDone), flight.DecisionFenced, flight.StateAbsent},
		{"Report of an unknown outcome to a key that was never used", hold, nil, lostReport(1, 1, flight.OutcomeUnknown), flight.DecisionAccepted, flight.StateInDoubt},
		{"Report of an older attempt", resend, []step{open(1, nonce1), endSession(1), open(2, nonce2)}, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionFenced, flight.StateRunning},
		{"Report after the attempt was marked lost", hold, lost, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionAccepted, flight.StateSucceeded},

		{"Abandon frees the flight", hold, []step{open(1, nonce1)}, abandon(nonce1), flight.DecisionAccepted, flight.StateReady},
		{"Abandon counts no retry", with2(hold), []step{open(1, nonce1), abandon(nonce1), open(1, nonce2)}, report(2, flight.OutcomeNotDone, ""), flight.DecisionAccepted, flight.StateReady},
		{"Abandon before the Open comes", hold, []step{abandon(nonce1)}, open(1, nonce1), flight.DecisionFenced, flight.StateAbsent},
		{"Abandon of another nonce", hold, []step{open(1, nonce1)}, abandon(nonce2), flight.DecisionAccepted, flight.StateRunning},
		{"Open with an abandoned nonce", hold, []step{open(1, nonce1), abandon(nonce2), abandon(nonce1)}, open(1, nonce2), flight.DecisionFenced, flight.StateReady},
		{"Abandon of an Open that has expired", hold, []step{afterTime(26 * time.Second)}, abandon(nonce1), flight.DecisionAccepted, flight.StateAbsent},
		{"Abandon of an Open that would be valid for too long", hold, []step{abandon(nonce3), afterTime(settleDelay * 3)}, open(1, nonce3), flight.DecisionFenced, flight.StateAbsent},
		{"Abandon of an Open that would be valid for hours", hold, nil, abandonAs(func(a *flight.Abandon) { a.NotAfter = start.Add(2 * time.Hour) }, nonce1), flight.DecisionOpenExpired, flight.StateAbsent},
		{"Abandon of another store epoch", hold, []step{open(1, nonce1)}, abandonAs(func(a *flight.Abandon) { a.StoreEpoch = 2 }, nonce1), flight.DecisionFenced, flight.StateRunning},
		{"Abandon after the attempt was marked lost", hold, lost, abandon(nonce1), flight.DecisionAccepted, flight.StateReady},
		{"Abandon after the attempt was marked lost, during a look-up", verify, looked, abandon(nonce1), flight.DecisionAccepted, flight.StateReady},
		{"Abandon of a reported attempt changes nothing", hold, []step{open(1, nonce1), report(1, flight.OutcomeUnknown, "")}, abandon(nonce1), flight.DecisionAccepted, flight.StateInDoubt},
		{"Abandon of an attempt that waits for its callback", hold, []step{open(1, nonce1), suspend(1, callback)}, abandon(nonce1), flight.DecisionFenced, flight.StateWaiting},
		{"Abandon of a saga asleep changes nothing", sagaPolicy, []step{submit, drive(nonce1), suspend(1, flight.Wake{})}, abandon(nonce1), flight.DecisionAccepted, flight.StateWaiting},
		{"Abandon of an older attempt", resend, []step{open(1, nonce1), endSession(1), open(2, nonce2)}, abandon(nonce1), flight.DecisionAccepted, flight.StateRunning},

		{"EndSession under hold", hold, []step{open(1, nonce1)}, endSession(1), flight.DecisionAccepted, flight.StateInDoubt},
		{"EndSession under resend", resend, []step{open(1, nonce1)}, endSession(1), flight.DecisionAccepted, flight.StateReady},
		{"EndSession under verify", verify, []step{open(1, nonce1)}, endSession(1), flight.DecisionAccepted, flight.StateRunning},
		{"EndSession of another session", hold, []step{open(1, nonce1)}, endSession(2), flight.DecisionAccepted, flight.StateRunning},
		{"EndSession by a read from before the session was created", hold, []step{open(1, nonce1)}, endSessionAs(func(c *flight.EndSession) { c.ReadRevision = 9 }, 1), flight.DecisionFenced, flight.StateRunning},
		{"EndSession by a guard key of another lease epoch", hold, []step{open(1, nonce1)}, endSessionAs(func(c *flight.EndSession) { c.Epoch = 2 }, 1), flight.DecisionFenced, flight.StateRunning},
		{"EndSession by a read of an etcd that has lost data", hold, []step{open(1, nonce1), recordGuard(3)}, endSessionAs(func(c *flight.EndSession) { c.Counter = 2 }, 1), flight.DecisionFenced, flight.StateRunning},
		{"EndSession by a read with the recorded counter", hold, []step{open(1, nonce1), recordGuard(3)}, endSessionAs(func(c *flight.EndSession) { c.Counter = 3 }, 1), flight.DecisionAccepted, flight.StateInDoubt},
		{"EndSession of another store epoch", hold, []step{open(1, nonce1)}, endSessionAs(func(c *flight.EndSession) { c.StoreEpoch = 2 }, 1), flight.DecisionFenced, flight.StateRunning},
		{"EndSession of an attempt that waits for its callback", hold, []step{open(1, nonce1), suspend(1, callback)}, endSession(1), flight.DecisionAccepted, flight.StateWaiting},
		{"WithdrawSession of a session that opened nothing", hold, []step{open(1, nonce1)}, withdrawSession(2), flight.DecisionAccepted, flight.StateRunning},
		{"WithdrawSession of a session whose attempt is open", hold, []step{open(2, nonce1)}, withdrawSession(2), flight.DecisionBusy, flight.StateRunning},
		{"WithdrawSession of a session that asks the provider", verify, looked, withdrawSession(2), flight.DecisionBusy, flight.StateRunning},
		{"WithdrawSession of another store epoch", hold, nil, func(*ledger) flight.Command {
			return &flight.WithdrawSession{Key: soloKey, Session: "B", StoreEpoch: 2}
		}, flight.DecisionFenced, flight.StateAbsent},
		{"WakeUp before the time-out is over", timed, []step{open(1, nonce1), afterTime(20 * time.Second)}, wakeUp, flight.DecisionBusy, flight.StateRunning},
		{"WakeUp after the time-out", timed, []step{open(1, nonce1), afterTime(20500 * time.Millisecond)}, wakeUp, flight.DecisionInDoubt, flight.StateInDoubt},
		{"Open after the time-out", timed, []step{open(1, nonce1), afterTime(20500 * time.Millisecond)}, open(2, nonce2), flight.DecisionInDoubt, flight.StateInDoubt},

		{"Finding: it happened", verify, looked, finding(flight.FindingHappened, 0), flight.DecisionAccepted, flight.StateSucceeded},
		{"Finding: it did not happen", verify, looked, finding(flight.FindingNotHappened, 0), flight.DecisionAccepted, flight.StateReady},
		{"Open with the nonce of a finished look-up", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), finding(flight.FindingNotHappened, 0)}, open(2, nonce2), flight.DecisionFenced, flight.StateReady},
		{"Finding: inconclusive", verify, looked, finding(flight.FindingNone, 0), flight.DecisionAccepted, flight.StateRunning},
		{"Finding: inconclusive too often", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), finding(flight.FindingNone, 0), afterTime(settleDelay), verifyAs(4)}, finding(flight.FindingNone, 0), flight.DecisionAccepted, flight.StateInDoubt},
		{"Finding for an earlier look-up", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), afterTime(30 * time.Second), verifyAs(4)}, finding(flight.FindingHappened, 1), flight.DecisionFenced, flight.StateRunning},
		{"Finding for a look-up that was not assigned", verify, lost, finding(flight.FindingHappened, 0), flight.DecisionFenced, flight.StateRunning},
		{"Open during a look-up, repeated by the assigned caller", verify, looked, open(3, nonce2), flight.DecisionVerify, flight.StateRunning},
		{"Open during a look-up by another caller", verify, looked, verifyAs(4), flight.DecisionBusy, flight.StateRunning},
		{"Open during a look-up after the assigned session has ended", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), endSession(2)}, verifyAs(4), flight.DecisionVerify, flight.StateRunning},
		{"Open during a look-up after the assigned caller gave up", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), abandon(nonce2)}, verifyAs(4), flight.DecisionVerify, flight.StateRunning},
		{"Open during a look-up after the assigned caller's time is over", verify, []step{open(1, nonce1), endSession(1), afterTime(settleDelay), open(2, nonce2), afterTime(30 * time.Second)}, verifyAs(4), flight.DecisionVerify, flight.StateRunning},

		{"Suspend puts a saga to sleep", sagaPolicy, []step{submit, drive(nonce1)}, suspend(1, flight.Wake{}), flight.DecisionAccepted, flight.StateWaiting},
		{"Suspend is not for other flights", hold, []step{open(1, nonce1)}, suspend(1, flight.Wake{}), flight.DecisionFenced, flight.StateRunning},
		{"Suspend of a saga that was cancelled meanwhile does not let it sleep", sagaPolicy, []step{submit, drive(nonce1), cancel}, suspend(1, flight.Wake{}), flight.DecisionAccepted, flight.StateReady},
		{"Suspend by a driver that has seen the cancel", sagaPolicy, []step{submit, drive(nonce1), cancel}, suspend(1, flight.Wake{Marked: true}), flight.DecisionAccepted, flight.StateWaiting},
		{"Open of a saga whose driver has died", sagaPolicy, []step{submit, drive(nonce1)}, drive(nonce2), flight.DecisionProceed, flight.StateRunning},
		{"Suspend by a driver that was replaced", sagaPolicy, []step{submit, drive(nonce1), drive(nonce2)}, suspend(1, flight.Wake{}), flight.DecisionFenced, flight.StateRunning},
		{"Abandon of a driver's attempt", sagaPolicy, []step{submit, drive(nonce1)}, abandon(nonce1), flight.DecisionFenced, flight.StateRunning},
		{"Wake of a saga", sagaPolicy, []step{submit, drive(nonce1), suspend(1, flight.Wake{})}, wakeUp, flight.DecisionAccepted, flight.StateReady},
		{"Open of a sleeping saga", sagaPolicy, []step{submit, drive(nonce1), suspend(1, flight.Wake{})}, drive(nonce2), flight.DecisionProceed, flight.StateRunning},
		{"Open of a saga under a session", sagaPolicy, []step{submit}, open(2, nonce2), flight.DecisionFenced, flight.StateReady},
		{"Suspend for a callback", hold, []step{open(1, nonce1)}, suspend(1, callback), flight.DecisionAccepted, flight.StateWaiting},
		{"Open of another caller before the callback's deadline", hold, []step{open(1, nonce1), suspend(1, callback)}, open(2, nonce2), flight.DecisionBusy, flight.StateWaiting},
		{"Open repeated while the attempt waits for its callback", hold, []step{open(1, nonce1), suspend(1, callback)}, open(1, nonce1), flight.DecisionFenced, flight.StateWaiting},
		{"WakeUp after the callback's deadline", hold, []step{open(1, nonce1), suspend(1, callback), afterTime(10 * time.Second)}, wakeUp, flight.DecisionInDoubt, flight.StateInDoubt},
		{"Report by the callback", hold, []step{open(1, nonce1), suspend(1, callback)}, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionAccepted, flight.StateSucceeded},
		{"Suspend after its callback", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, suspend(1, callback), flight.DecisionAccepted, flight.StateSucceeded},
		{"Suspend of a lost attempt", hold, []step{open(1, nonce1), endSession(1)}, suspend(1, callback), flight.DecisionFenced, flight.StateInDoubt},
		{"Report by the callback of a lost attempt", hold, []step{open(1, nonce1), suspend(1, callback), afterTime(10 * time.Second), wakeUp}, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionAccepted, flight.StateSucceeded},

		{"Cancel of a ready flight", hold, []step{submit}, cancel, flight.DecisionAccepted, flight.StateCancelled},
		{"Cancel of a running flight is recorded", hold, []step{open(1, nonce1)}, cancel, flight.DecisionAccepted, flight.StateRunning},
		{"Report of success after a cancel", hold, []step{open(1, nonce1), cancel}, report(1, flight.OutcomeSucceeded, "x"), flight.DecisionAccepted, flight.StateSucceeded},
		{"Report of not_done after a cancel", hold, []step{open(1, nonce1), cancel}, report(1, flight.OutcomeNotDone, ""), flight.DecisionAccepted, flight.StateCancelled},
		{"Report of unknown after a cancel", resend, []step{open(1, nonce1), cancel}, report(1, flight.OutcomeUnknown, ""), flight.DecisionAccepted, flight.StateInDoubt},
		{"Finding of no effect after a cancel", verify, []step{open(1, nonce1), cancel, endSession(1), afterTime(settleDelay), open(2, nonce2)}, finding(flight.FindingNotHappened, 0), flight.DecisionAccepted, flight.StateCancelled},
		{"Cancel of a tainted flight", resend, []step{open(1, nonce1), report(1, flight.OutcomeUnknown, "")}, cancel, flight.DecisionAccepted, flight.StateInDoubt},
		{"Cancel of a flight that ended", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, cancel, flight.DecisionFailedPrecondition, flight.StateSucceeded},

		{"Resolve: it happened", hold, lost, resolve(flight.FindingHappened), flight.DecisionAccepted, flight.StateSucceeded},
		{"Resolve: it did not happen", hold, lost, resolve(flight.FindingNotHappened), flight.DecisionAccepted, flight.StateReady},
		{"Resolve: it did not happen, with exhausted retries", flight.Policy{Retry: flight.RetryPolicy{Attempts: 1, Within: settleDelay}}, []step{open(1, nonce1), afterTime(settleDelay), endSession(1)}, resolve(flight.FindingNotHappened), flight.DecisionAccepted, flight.StateReady},
		{"Resolve: it did not happen, after a cancel", hold, []step{open(1, nonce1), cancel, endSession(1)}, resolve(flight.FindingNotHappened), flight.DecisionAccepted, flight.StateCancelled},
		{"Resolve: fail", hold, lost, resolve(flight.FindingFail), flight.DecisionAccepted, flight.StateFailed},
		{"Resolve of a flight that is not in doubt", hold, []step{open(1, nonce1)}, resolve(flight.FindingHappened), flight.DecisionFailedPrecondition, flight.StateRunning},
		{"Resolve with a finding of an approval", hold, lost, resolve(flight.FindingApproved), flight.DecisionFailedPrecondition, flight.StateInDoubt},

		{"Approve", flight.Policy{Approval: true}, []step{submit}, decide(flight.FindingApproved), flight.DecisionAccepted, flight.StateReady},
		{"Reject", flight.Policy{Approval: true}, []step{submit}, decide(flight.FindingRejected), flight.DecisionAccepted, flight.StateCancelled},
		{"Reject after an approval", flight.Policy{Approval: true}, []step{submit, decide(flight.FindingApproved)}, decide(flight.FindingRejected), flight.DecisionFailedPrecondition, flight.StateReady},
		{"Approve after the deadline", within, []step{submit, afterTime(settleDelay)}, decide(flight.FindingApproved), flight.DecisionFailedPrecondition, flight.StateAwaitingApproval},
		{"Reject after the deadline", within, []step{submit, afterTime(settleDelay)}, decide(flight.FindingRejected), flight.DecisionAccepted, flight.StateCancelled},
		{"WakeUp before the deadline of an approval", within, []step{submit, afterTime(settleDelay - time.Second)}, wakeUp, flight.DecisionAwaitingApproval, flight.StateAwaitingApproval},
		{"WakeUp at the deadline of an approval", within, []step{submit, afterTime(settleDelay)}, wakeUp, flight.DecisionAccepted, flight.StateCancelled},
		{"WakeUp of an approval without a deadline", flight.Policy{Approval: true}, []step{submit, afterTime(retention)}, wakeUp, flight.DecisionAwaitingApproval, flight.StateAwaitingApproval},
		{"Open after an expired approval", within, []step{submit, afterTime(settleDelay), wakeUp}, open(1, nonce1), flight.DecisionReplay, flight.StateCancelled},
		{"Retry of a rejected flight", within, []step{submit, decide(flight.FindingRejected)}, retry, flight.DecisionAccepted, flight.StateAwaitingApproval},
		{"Retry of a flight that failed without a receipt", with2(hold), []step{open(1, nonce1), report(1, flight.OutcomeNotDone, ""), open(1, nonce2), report(2, flight.OutcomeNotDone, "")}, retry, flight.DecisionAccepted, flight.StateReady},
		{"Retry of a cancelled flight", hold, []step{submit, cancel}, retry, flight.DecisionAccepted, flight.StateReady},
		{"Retry of a refusal", hold, []step{open(1, nonce1), report(1, flight.OutcomeRefused, "")}, retry, flight.DecisionFailedPrecondition, flight.StateFailed},
		{"Retry of a flight in progress", hold, []step{open(1, nonce1)}, retry, flight.DecisionFailedPrecondition, flight.StateRunning},
		{"Free of a flight that ended", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, free, flight.DecisionAccepted, flight.StateAbsent},
		{"Free of a tombstone", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention), expire}, free, flight.DecisionAccepted, flight.StateAbsent},
		{"Free of a flight in doubt", hold, lost, free, flight.DecisionFailedPrecondition, flight.StateInDoubt},
		{"Seal of a key that was never used", hold, nil, seal, flight.DecisionAccepted, flight.StateCancelled},
		{"Open of a sealed key", hold, []step{seal}, open(1, nonce1), flight.DecisionReplay, flight.StateCancelled},
		{"Free of a sealed key", hold, []step{seal}, free, flight.DecisionFailedPrecondition, flight.StateCancelled},
		{"Retry of a sealed key", hold, []step{seal}, retry, flight.DecisionFailedPrecondition, flight.StateCancelled},
		{"Free of a sealed key's tombstone", hold, []step{seal, afterTime(31 * 24 * time.Hour), expire}, free, flight.DecisionFailedPrecondition, flight.StateExpired},
		{"Seal of a key that was opened", hold, []step{open(1, nonce1)}, seal, flight.DecisionFailedPrecondition, flight.StateRunning},
		{"Expire before the retention is over", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x")}, expire, flight.DecisionFailedPrecondition, flight.StateSucceeded},
		{"Expire of a flight in progress", hold, []step{open(1, nonce1), afterTime(retention)}, expire, flight.DecisionFailedPrecondition, flight.StateRunning},
		{"Expire", hold, []step{open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), afterTime(retention)}, expire, flight.DecisionAccepted, flight.StateExpired},
	}
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			newScript(t, l.policy).run(l.given...).run(l.when).expect(l.answer, l.state)
		})
	}
}

// TestTaint_IsSticky: only knowledge of the outcome removes the taint.
func TestTaint_IsSticky(t *testing.T) {
	lost := []step{open(1, nonce1), endSession(1), open(2, nonce2)} // the first attempt is lost, the second is open under resend
	t.Run("connection refused until the retries are spent", func(t *testing.T) {
		newScript(t, with2(resend)).run(lost...).run(report(2, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	})
	t.Run("retries are spent, and the provider can be asked", func(t *testing.T) {
		p := newScript(t, resendLook).run(lost...).run(report(2, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateRunning)
		p.check(p.flight().Verifying(), "a look-up is due").run(afterTime(settleDelay), verifyAs(4)).expect(flight.DecisionVerify, flight.StateRunning)
		p.run(finding(flight.FindingHappened, 0)).expect(flight.DecisionAccepted, flight.StateSucceeded)
	})
	t.Run("refused inside the window answers all attempts", func(t *testing.T) {
		newScript(t, resendFor).run(lost...).run(report(2, flight.OutcomeRefused, "")).expect(flight.DecisionAccepted, flight.StateFailed)
	})
	t.Run("refused outside the window answers one attempt", func(t *testing.T) {
		newScript(t, resendFor).run(lost...).run(afterTime(providerWindow), report(2, flight.OutcomeRefused, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	})
	t.Run("not done outside the window", func(t *testing.T) {
		newScript(t, resendFor).run(lost...).run(afterTime(providerWindow), report(2, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	})
	t.Run("cancelled", func(t *testing.T) {
		newScript(t, resend).run(lost...).run(cancel, report(2, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
	})
	t.Run("a later report of the attempt removes the taint", func(t *testing.T) {
		newScript(t, hold).run(open(1, nonce1), endSession(1), report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateReady)
	})
}

// TestRetryPolicy: the time of the retry after a not_done report.
func TestRetryPolicy(t *testing.T) {
	p := newScript(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: 4 * time.Second, MaxBackoff: 10 * time.Second}})
	p.run(open(1, nonce1), report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateScheduled)
	pause := p.flight().NotBefore.Until(p.ledger.header.Now)
	p.check(pause >= 2*time.Second && pause <= 4*time.Second, "the first pause is between half and all of MinBackoff")
	p.run(open(1, nonce2)).expect(flight.DecisionBusy, flight.StateScheduled)
	p.check(p.last.Wait == pause, "Wait is the remaining time")

	p = newScript(t, hold).run(open(1, nonce1), func(w *ledger) flight.Command {
		r := reportOf(soloKey, w.openedAttempts[0][0], flight.OutcomeNotDone, "")
		r.RetryAfter = 7 * time.Second
		return r
	}).expect(flight.DecisionAccepted, flight.StateScheduled)
	p.check(p.flight().NotBefore == start.Add(7*time.Second), "Retry-After is honoured")

	p = newScript(t, flight.Policy{Retry: flight.RetryPolicy{Attempts: 9, Within: settleDelay}})
	p.run(open(1, nonce1), afterTime(settleDelay), report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateFailed)
}

func TestBackoff_DoublesAndIsTheSameEverywhere(t *testing.T) {
	r := flight.RetryPolicy{Attempts: 100, MinBackoff: time.Second, MaxBackoff: time.Minute}
	id := soloKey.FlightID()
	for n, base := 1, time.Second; n < 100; n, base = n+1, min(2*base, time.Minute) {
		d := r.Backoff(id, n)
		require.GreaterOrEqual(t, d, base/2, "after %d attempts %v, want %v to %v", n, d, base/2, base)
		require.LessOrEqual(t, d, base, "after %d attempts %v, want %v to %v", n, d, base/2, base)
		require.Equal(t, r.Backoff(id, n), d, "after %d attempts %v, want %v to %v", n, d, base/2, base)
	}
	endless := flight.RetryPolicy{Attempts: 1, MinBackoff: 1, MaxBackoff: 1<<63 - 1}
	d := endless.Backoff(id, 1000)
	require.GreaterOrEqual(t, d, time.Duration(1<<61), "the longest pause overflowed to %v", d)
}

// recordGuard records a counter of the guard key.
func recordGuard(counter uint64) step {
	return func(*ledger) flight.Command { return &flight.RecordGuard{Epoch: 1, Counter: counter} }
}
