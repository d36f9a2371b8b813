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
	sent  clock.Moment // when the Open was first sent
	reply flight.Reply

	watching sync.WaitGroup
}

// grantedAnswer builds the answer for DecisionProceed and DecisionVerify. target is the attempt that was opened or is
// to be looked up; previous is shown to the handler.
func (a *attempt) answer(d runner.Decision, about, previous *flight.Attempt) (runner.Answer, error) {
	ex, f := a.ex, a.reply.Flight
	input, err := ex.writer.Input(&a.call.Submission, f)
	if err != nil {
		return runner.Answer{}, errors.Join(&effect.Unavailable{Code: "no_leader", Cause: err}, a.abandon("the input could not be read"))
	}
	out := runner.Answer{
		Decision: d, Generation: f.Generation, Attempt: a, Policy: f.Policy, Sent: a.sent,
		Spec: effect.Spec{
			Key: f.Key, Number: about.Number, Input: input, Recovery: f.Policy.Recovery, Previous: previous,
			IdempotencyKey: ex.writer.IdempotencyKey(f), FencingToken: ex.writer.SealToken(f, about),
		},
	}
	header := ex.cfg.Memory.Header()
	if left, bounded := f.ResendLeft(header.Latest(ex.cfg.Memory.Now())); bounded {
		out.Resend = a.sent.Add(left)
	}
	return out, nil
}

// cancelWatchDelay is how long an attempt runs before its flight is watched for a cancellation request: a short attempt
// ends before a person could ask for one.
const cancelWatch = 200 * time.Millisecond

// errCancelled is the cause of an attempt's context after a request to cancel the flight.
var errCancelled = errors.New("executor: cancellation was requested")

// Watch implements runner.Attempt. stop waits for the goroutine that the timer has started.
func (a *attempt) Watch(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	a.watching.Add(1)
	timer := time.AfterFunc(cancelWatch, func() {
		defer a.watching.Done()
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
			a.watching.Wait() // the wait for the ledger ends with ctx
		}
	}
}

// Report implements runner.Attempt.
func (a *attempt) Report(_ context.Context, end runner.End) (runner.Answer, error) {
	if end.NotStarted {
		if err := a.abandon("the attempt lost the right to act before the effect was sent"); err != nil {
			return runner.Answer{}, answer.Unavailable(a.call.Key, err)
		}
		return runner.Answer{Decision: runner.Again, Setback: end.Err}, nil
	}
	ex, f := a.ex, a.reply.Flight
	ex.cfg.Crash(crashpoint.BeforeReport)
	r := &flight.Report{
		Key: f.Key, Generation: f.Generation, Token: a.reply.Token, Outcome: end.Outcome, ExternalID: flight.Text(end.Answer.ExternalID),
	}
	if end.Outcome.Final() { // a body over the limit is truncated and marked so; it never makes an attempt fail
		r.Body = flight.NewBlob(flight.Text(end.Answer.ContentType), end.Answer.Body, flight.MaxReceiptBody)
	}
	if end.Err != nil {
		r.Error, r.RetryAfter = flight.Text(end.Err.Error()), effect.AskedPause(end.Err)
	}
	// Point of no return: once committed or spooled, the outcome survives this process.
	reply, err := a.report(r)
	ex.cfg.Crash(crashpoint.AfterReport)
	if end.Late {
		return runner.Answer{}, err
	}
	if err != nil {
		return runner.Answer{}, a.outlast(r, err)
	}
	ex.cfg.Crash(crashpoint.BeforeRelease)
	a.Release()
	f = reply.Flight
	switch {
	case reply.Decision != flight.Accepted && (f == nil || !f.State.Terminal()):
		return runner.Answer{}, &effect.Fenced{Key: a.call.Key}
	case reply.Decision != flight.Accepted:
		return ex.done(f, a.call, effect.Replayed)
	case end.Outcome.Final() && f.Receipt != nil && f.Receipt.Body.Digest == r.Body.Digest:
		result, err := ex.writer.Receipt(f, r.Body.Data, effect.Executed) // without a second read of the body
		return runner.Answer{Result: result}, err
	case answer.IsFinal(f):
		return ex.done(f, a.call, effect.Executed)
	case f.Looking():
		ex.settle.Remaining(f)
		return runner.Answer{Decision: runner.Again}, nil
	case f.Policy.Retry.Declared() || f.Policy.Saga:
		return runner.Answer{Decision: runner.Again}, nil
	}
	return runner.Answer{Decision: runner.Unsettled}, nil
}

// sendReport sends a report to the ledger, which spools it on disk if it cannot commit it.
func (a *attempt) report(r *flight.Report) (flight.Reply, error) {
	reply, err := a.ex.cfg.Ledger.Report(a.ex.telling.Context(), r)
	if err == nil {
		a.ex.cfg.Events.NoteReport(&reply, r.Token.Number, r.Outcome)
	}
	return reply, err
}

// maxClaimHold bounds how long a claim is kept for a report, or an abandon, that is not committed yet.
const reportHold = 10 * time.Minute

// holdClaimUntilRecorded keeps the claim of an effect whose report is not recorded yet, and returns *effect.Unrecorded
// for the caller. A report that could not be spooled either is sent again until Close has timed out. If the process
// dies before such a report is stored, the report is lost and the recovery policy decides.
//
// Runner.Close waits for the goroutine.
func (a *attempt) outlast(r *flight.Report, why error) error {
	ex := a.ex
	unrecorded := &effect.Unrecorded{Cause: why, Where: "its report is on no disk, and is sent again until this process ends"}
	if errors.Is(why, ErrPending) {
		unrecorded.Where = "its report waits on this node's disk and is sent on"
	}
	ex.runner.Work.Go(func() {
		defer a.Release()
		for why != nil && !errors.Is(why, ErrPending) && clock.Sleep(ex.runner.Life, lastPoll) {
			_, why = a.report(r)
		}
		ctx, cancel := context.WithTimeout(ex.runner.Draining, reportHold)
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
func (a *attempt) Verify(ctx context.Context, verb flight.Verb, found effect.Answer) (runner.Answer, error) {
	ex, f := a.ex, a.reply.Flight
	defer a.Release()
	reply, err := ex.insist(ex.asking.Context(), &flight.Verdict{
		Key: f.Key, Generation: f.Generation, Probe: a.reply.Probe, Result: verb,
		ExternalID: found.ExternalID, Body: flight.NewBlob(found.ContentType, found.Body, flight.MaxReceiptBody),
	})
	if err != nil {
		return runner.Answer{}, answer.Unavailable(a.call.Key, err)
	}
	ex.settle.Forget(f.ID)
	ex.cfg.Events.Note(f.Key, reply.Events)
	if answer.IsFinal(reply.Flight) {
		return ex.done(reply.Flight, a.call, effect.Replayed)
	}
	return runner.Answer{Decision: runner.Again}, nil
}

// proposeUntilAnswered proposes a command after every error again, until the ledger has answered or ctx ends.
func (ex *Executor) insist(ctx context.Context, c flight.Command) (flight.Reply, error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		reply, err := ex.cfg.Ledger.Propose(ctx, c)
		if err == nil || !clock.Sleep(ctx, clock.Jitter(pause)) {
			return reply, err
		}
	}
}

// abandon proposes that nothing was sent in the attempt, nor will be, and releases the claim. If the ledger does not
// answer, abandon returns the error and the abandon is proposed again in the background.
func (a *attempt) abandon(why string) error {
	reply, err := a.ex.cfg.Ledger.Propose(a.ex.asking.Context(), a.abandonment(why))
	if err != nil {
		a.abandonInBackground()
		return err
	}
	a.ex.cfg.Events.Note(a.open.Key, reply.Events)
	a.Release()
	return nil
}

func (a *attempt) abandonment(why string) *flight.Abandon {
	return &flight.Abandon{Key: a.open.Key, Nonce: a.open.Nonce, NotAfter: a.open.NotAfter, StoreEpoch: a.open.StoreEpoch, Error: why}
}

// abandonInBackground proposes to abandon an Open whose answer is not known, until the ledger has answered.
// Runner.Close waits for the goroutine. If the process dies first, an attempt that was opened ends with its session.
func (a *attempt) abandonInBackground() {
	a.ex.runner.Work.Go(func() {
		defer a.Release()
		ctx, cancel := context.WithTimeout(a.ex.runner.Life, reportHold)
		defer cancel()
		if reply, err := a.ex.insist(ctx, a.abandonment("the opener did not receive an answer")); err == nil {
			a.ex.cfg.Events.Note(a.open.Key, reply.Events)
		}
	})
}
