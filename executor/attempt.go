package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/runner"
	"github.com/flightd/flightd/lease"
)

// attempt is one Open of a call and the ledger's reply. It implements runner.Attempt.
type attempt struct {
	lease.Lease
	ex    *Executor
	call  *effect.Call
	open  *flight.Open
	sent  clock.Instant // when the Open was first sent
	reply flight.Reply

	watchers sync.WaitGroup
}

// grantedAnswer builds the answer for DecisionProceed and DecisionVerify. target is the attempt that was opened or is
// to be looked up; previous is shown to the handler.
func (a *attempt) grantedAnswer(decision runner.Decision, target, previous *flight.Attempt) (runner.Answer, error) {
	ex, f := a.ex, a.reply.Flight
	input, err := ex.writer.Input(&a.call.Submission, f)
	if err != nil {
		return runner.Answer{}, errors.Join(&effect.Unavailable{Code: "no_leader", Cause: err}, a.abandon("the input could not be read"))
	}
	out := runner.Answer{
		Decision: decision, Generation: f.Generation, Attempt: a, Policy: f.Policy, SentAt: a.sent,
		Spec: effect.Spec{
			Key: f.Key, Number: target.Number, Input: input, Recovery: f.Policy.Recovery, Previous: previous,
			IdempotencyKey: ex.writer.IdempotencyKey(f), FencingToken: ex.writer.SealToken(f, target), Traceparent: f.Span(target).Traceparent(),
		},
	}
	header := ex.cfg.Reader.Header()
	if left, bounded := f.ResendLeft(header.Latest(ex.cfg.Reader.Now())); bounded {
		out.ResendUntil = a.sent.Add(left)
	}
	return out, nil
}

// cancelWatchDelay is how long an attempt runs before its flight is watched for a cancellation request: a short attempt
// ends before a person could ask for one.
const cancelWatchDelay = 200 * time.Millisecond

// errCancelled is the cause of an attempt's context after a request to cancel the flight.
var errCancelled = errors.New("executor: cancellation was requested")

// Watch implements runner.Attempt. stop waits for the goroutine that the timer has started.
func (a *attempt) Watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	a.watchers.Add(1)
	timer := time.AfterFunc(cancelWatchDelay, func() {
		defer a.watchers.Done()
		f := a.reply.Flight
		for seen := f.Version; ; {
			now, err := a.ex.cfg.Ledger.Wait(ctx, f.ID, seen)
			if err != nil || now == nil {
				return
			}
			if now.Cancel != nil && now.Generation == f.Generation {
				cancel(errCancelled)
				return
			}
			seen = now.Version
		}
	})
	return func() {
		if !timer.Stop() {
			a.watchers.Wait() // the wait for the ledger ends with ctx
		}
	}
}

// Report implements runner.Attempt.
func (a *attempt) Report(_ context.Context, end runner.Completion) (runner.Answer, error) {
	if end.NotStarted {
		if err := a.abandon("the attempt lost the right to act before the effect was sent"); err != nil {
			return runner.Answer{}, answer.Unavailable(a.call.Key, err)
		}
		return runner.Answer{Decision: runner.DecisionRetry, RetryCause: end.Err}, nil
	}
	ex, f := a.ex, a.reply.Flight
	ex.cfg.Crash(crashpoint.BeforeReport)
	r := &flight.Report{
		Key: f.Key, Generation: f.Generation, Token: a.reply.Token, Outcome: end.Outcome, ExternalID: flight.Sanitize(end.Answer.ExternalID),
		Error: flight.Sanitize(end.ErrorText()), RetryAfter: effect.RequestedPause(end.Err),
	}
	if end.Outcome.Final() { // a body over the limit is truncated and marked so; it never makes an attempt fail
		r.Body = flight.NewBlob(flight.Sanitize(end.Answer.ContentType), end.Answer.Body, flight.MaxReceiptBody)
	}
	// Point of no return: once committed or spooled, the outcome survives this process.
	reply, err := a.sendReport(r)
	ex.cfg.Crash(crashpoint.AfterReport)
	if end.Late {
		return runner.Answer{}, err
	}
	if err != nil {
		return runner.Answer{}, a.holdClaimUntilRecorded(r, err)
	}
	ex.cfg.Crash(crashpoint.BeforeRelease)
	a.Release()
	f = reply.Flight
	fenced := reply.Decision != flight.DecisionAccepted || r.IsBehind(f)
	switch {
	case fenced && (f == nil || !f.State.Terminal()):
		return runner.Answer{}, &effect.Fenced{Key: a.call.Key}
	case fenced:
		return ex.finalAnswer(f, a.call, effect.SourceReplayed)
	case end.Outcome.Final() && f.Receipt != nil && f.Receipt.Body.Digest == r.Body.Digest:
		result, err := ex.writer.Receipt(f, r.Body.Data, effect.SourceExecuted) // without a second read of the body
		return runner.Answer{Result: result}, err
	case answer.IsFinal(f):
		return ex.finalAnswer(f, a.call, effect.SourceExecuted)
	case f.Verifying():
		ex.lookUpDelay.Remaining(f)
		return runner.Answer{Decision: runner.DecisionRetry}, nil
	case f.Policy.Retry.Declared() || f.Policy.Saga:
		return runner.Answer{Decision: runner.DecisionRetry}, nil
	}
	return runner.Answer{Decision: runner.DecisionUnsettled}, nil
}

// sendReport sends a report to the ledger, which spools it on disk if it cannot commit it.
func (a *attempt) sendReport(r *flight.Report) (flight.Reply, error) {
	reply, err := a.ex.cfg.Ledger.Report(a.ex.reportDeadline.Context(), r)
	if err == nil {
		a.ex.cfg.Events.PublishReport(&reply, r.Token.Number, r.Outcome)
	}
	return reply, err
}

// maxClaimHold bounds how long a claim is kept for a report, or an abandon, that is not committed yet.
const maxClaimHold = 10 * time.Minute

// holdClaimUntilRecorded keeps the claim of an effect whose report is not recorded yet, and returns *effect.Unrecorded
// for the caller. A report that could not be spooled either is sent again until Close has timed out. If the process
// dies before such a report is stored, the report is lost and the recovery policy decides.
//
// Runner.Close waits for the goroutine.
func (a *attempt) holdClaimUntilRecorded(r *flight.Report, cause error) error {
	ex := a.ex
	unrecorded := &effect.Unrecorded{Cause: cause, ReportPlace: "its report is on no disk, and is sent again until this process ends"}
	if errors.Is(cause, effect.ErrPending) {
		unrecorded.ReportPlace = "its report waits on this node's disk and is sent on"
	}
	ex.runner.Work.Go(func() {
		defer a.Release()
		for cause != nil && !errors.Is(cause, effect.ErrPending) && clock.Sleep(ex.runner.BaseContext, maxRetryPause) {
			_, cause = a.sendReport(r)
		}
		ctx, cancel := context.WithTimeout(ex.runner.DrainContext, maxClaimHold)
		defer cancel()
		f := a.reply.Flight
		for seen := f.Version; f.OpenAttempt() != nil && f.AttemptNumber() == a.reply.Token.Number; seen = f.Version {
			var err error
			if f, err = ex.cfg.Ledger.Wait(ctx, a.reply.Flight.ID, seen); err != nil || f == nil {
				return
			}
		}
	})
	return unrecorded
}

// Verify implements runner.Attempt. If the process dies before the finding is recorded, the next caller looks up again.
func (a *attempt) Verify(ctx context.Context, finding flight.Finding, details effect.Answer) (runner.Answer, error) {
	ex, f := a.ex, a.reply.Flight
	defer a.Release()
	reply, err := ex.proposeUntilAnswered(ex.requestDeadline.Context(), &flight.ReportFinding{
		Key: f.Key, Generation: f.Generation, Verification: a.reply.Verification, Finding: finding,
		ExternalID: details.ExternalID, Body: flight.NewBlob(details.ContentType, details.Body, flight.MaxReceiptBody),
	})
	if err != nil {
		return runner.Answer{}, answer.Unavailable(a.call.Key, err)
	}
	ex.lookUpDelay.Delete(f.ID)
	ex.cfg.Events.Publish(f.Key, reply.Events)
	if answer.IsFinal(reply.Flight) {
		return ex.finalAnswer(reply.Flight, a.call, effect.SourceReplayed)
	}
	return runner.Answer{Decision: runner.DecisionRetry}, nil
}

// proposeUntilAnswered proposes a command after every error again, until the ledger has answered or ctx ends.
func (ex *Executor) proposeUntilAnswered(ctx context.Context, command flight.Command) (flight.Reply, error) {
	reply, _, err := proposeUntil(ctx, ex.cfg.Ledger, command, func(error) bool { return true })
	return reply, err
}

// abandon proposes that nothing was sent in the attempt, nor will be, and releases the claim. If the ledger does not
// answer, abandon returns the error and the abandon is proposed again in the background.
func (a *attempt) abandon(why string) error {
	reply, err := a.ex.cfg.Ledger.Propose(a.ex.requestDeadline.Context(), a.abandonCommand(why))
	if err != nil {
		a.abandonInBackground()
		return err
	}
	a.ex.cfg.Events.Publish(a.open.Key, reply.Events)
	a.Release()
	return nil
}

func (a *attempt) abandonCommand(why string) *flight.Abandon {
	return &flight.Abandon{Key: a.open.Key, Nonce: a.open.Nonce, NotAfter: a.open.NotAfter, StoreEpoch: a.open.StoreEpoch, Error: why}
}

// abandonInBackground proposes to abandon an Open whose answer is not known, until the ledger has answered.
// Runner.Close waits for the goroutine. If the process dies first, an attempt that was opened ends with its session.
func (a *attempt) abandonInBackground() {
	a.ex.runner.Work.Go(func() {
		defer a.Release()
		ctx, cancel := context.WithTimeout(a.ex.runner.BaseContext, maxClaimHold)
		defer cancel()
		if reply, err := a.ex.proposeUntilAnswered(ctx, a.abandonCommand("the opener did not receive an answer")); err == nil {
			a.ex.cfg.Events.Publish(a.open.Key, reply.Events)
		}
	})
}
