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

// attempt is one Open of a call: what was asked for, and what came of it. It implements runner.Attempt.
type attempt struct {
	lease.Lease
	ex    *Executor
	call  *effect.Call
	open  *flight.Open
	sent  clock.Moment // when the Open was first sent
	reply flight.Reply

	watching sync.WaitGroup
}

// answer is the runner's answer where there is something to do: about is the attempt that was opened or is to be looked up,
// previous the one that its handler is told of.
func (a *attempt) answer(d runner.Decision, about, previous *flight.Attempt) (runner.Answer, error) {
	ex, f := a.ex, a.reply.Flight
	input, err := ex.writer.Input(&a.call.Submission, f)
	if err != nil {
		return runner.Answer{}, errors.Join(&effect.Unavailable{Code: "no_leader", Cause: err}, a.abandon("its input could not be read"))
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

// cancelWatch is how long an attempt runs before anybody looks whether somebody wants it cancelled: short ones are
// over before a person could.
const cancelWatch = 200 * time.Millisecond

// errCancelled is the cause of an attempt's context when somebody asked for the flight's cancellation.
var errCancelled = errors.New("executor: cancellation was requested")

// Watch implements runner.Attempt.
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
			a.watching.Wait() // it ends with ctx
		}
	}
}

// Report implements runner.Attempt.
func (a *attempt) Report(_ context.Context, end runner.End) (runner.Answer, error) {
	if end.NotStarted {
		if err := a.abandon("the right to start was lost before the effect was sent"); err != nil {
			return runner.Answer{}, answer.Unavailable(a.call.Key, err)
		}
		return runner.Answer{Decision: runner.Again, Setback: end.Err}, nil
	}
	ex, f := a.ex, a.reply.Flight
	ex.cfg.Crash(crashpoint.BeforeReport)
	r := &flight.Report{
		Key: f.Key, Generation: f.Generation, Token: a.reply.Token, Outcome: end.Outcome, ExternalID: flight.Text(end.Answer.ExternalID),
	}
	if end.Outcome.Final() { // too long a body is shortened and marked so; it never makes an attempt fail
		r.Body = flight.NewBlob(flight.Text(end.Answer.ContentType), end.Answer.Body, flight.MaxReceiptBody)
	}
	if end.Err != nil {
		r.Error, r.RetryAfter = flight.Text(end.Err.Error()), effect.AskedPause(end.Err)
	}
	// The outcome is on its way into the ledger, and survives this process if it can be written anywhere at all.
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
		result, err := ex.writer.Receipt(f, r.Body.Data, effect.Executed) // the bytes are at hand
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

// report brings the end of an attempt into the ledger, or into the spool.
func (a *attempt) report(r *flight.Report) (flight.Reply, error) {
	reply, err := a.ex.cfg.Ledger.Report(a.ex.telling.Context(), r)
	if err == nil {
		a.ex.cfg.Events.NoteReport(&reply, r.Token.Number, r.Outcome)
	}
	return reply, err
}

// reportHold bounds how long a claim is kept for a report that is on its way into the ledger.
const reportHold = 10 * time.Minute

// outlast keeps the session of an effect whose report could not be recorded yet, so that nobody takes it for lost while it
// is only late. A report that is not in the spool either is sent again and again, until Close: a report that is stored nowhere
// by then is lost with this process, and the recovery policy decides.
func (a *attempt) outlast(r *flight.Report, why error) error {
	ex := a.ex
	unrecorded := &effect.Unrecorded{Cause: why, Where: "its report is on no disk, and is brought again until this process ends"}
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

// Verify implements runner.Attempt. If the process dies before the verdict is recorded, the next caller asks again.
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

// insist proposes a command until the ledger has answered, or ctx ends.
func (ex *Executor) insist(ctx context.Context, c flight.Command) (flight.Reply, error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		reply, err := ex.cfg.Ledger.Propose(ctx, c)
		if err == nil || !clock.Sleep(ctx, clock.Jitter(pause)) {
			return reply, err
		}
	}
}

// abandon says that nothing was sent in an attempt, nor will be, and lets the claim go. If the ledger does not answer, it is
// told again in the background.
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

// abandonInBackground abandons an Open whose answer is not known, until the ledger has answered. Close waits for it. If the
// process dies first, the attempt that may be open ends with its session.
func (a *attempt) abandonInBackground() {
	a.ex.runner.Work.Go(func() {
		defer a.Release()
		ctx, cancel := context.WithTimeout(a.ex.runner.Life, reportHold)
		defer cancel()
		if reply, err := a.ex.insist(ctx, a.abandonment("its opener gave up")); err == nil {
			a.ex.cfg.Events.Note(a.open.Key, reply.Events)
		}
	})
}
