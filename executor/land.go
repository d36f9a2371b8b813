package executor

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/caller"
)

// land reports how the effect ended, and does what the ledger makes of it.
func (ex *Executor) land(t *trip, end caller.Ending) (again bool, result effect.Result, err error) {
	opened := t.at.reply
	r := reportOf(opened, end)
	reply, err := ex.report(opened, r)
	ex.cfg.Crash(afterReport)
	if err != nil {
		ex.outlast(t, r, err)
		return false, effect.Result{}, &effect.Unrecorded{Result: provisional(opened, end), Cause: err, Where: whereabouts(err)}
	}
	f := reply.Flight
	if reply.Decision != flight.Accepted {
		if f != nil && f.State.Terminal() {
			result, err := ex.answer(f, &t.call, effect.Replayed)
			return false, result, err
		}
		return false, effect.Result{}, &effect.Fenced{Key: t.call.Key}
	}
	switch {
	case end.Outcome.Final() && f.Receipt != nil && f.Receipt.Body.Digest == r.Body.Digest:
		result, err := ex.writer.Receipt(f, r.Body.Data, effect.Executed) // the bytes are at hand
		return false, result, err
	case answer.IsFinal(f):
		result, err := ex.answer(f, &t.call, effect.Executed)
		return false, result, err
	case f.Looking():
		ex.settle.Remaining(f)
		return true, effect.Result{}, nil
	case f.Policy.Retry.Declared() || f.Policy.Saga:
		ex.release(t)
		wait := max(0, f.NotBefore.Until(ex.cfg.Memory.Now()))
		return true, effect.Result{}, ex.pause(t, flight.Reply{Flight: f, Wait: wait})
	}
	return false, effect.Result{}, &effect.Unsettled{Key: f.Key, Outcome: end.Outcome, Err: end.Err}
}

// whereabouts says what has become of a report that is not recorded.
func whereabouts(why error) string {
	if errors.Is(why, ErrPending) {
		return "its report waits on this node's disk and is sent on"
	}
	return "its report is on no disk, and is brought again until this process ends"
}

// reportOf is what the ledger is told about the end of an attempt.
func reportOf(opened flight.Reply, end caller.Ending) *flight.Report {
	f := opened.Flight
	r := &flight.Report{
		Key: f.Key, Generation: f.Generation, Token: opened.Token, Outcome: end.Outcome,
		ExternalID: flight.Text(end.Answer.ExternalID), Body: bodyOf(end),
	}
	if end.Err != nil {
		r.Error = flight.Text(end.Err.Error())
		r.RetryAfter = effect.AskedPause(end.Err)
	}
	return r
}

// report brings the end of an attempt into the ledger, or into the spool.
func (ex *Executor) report(opened flight.Reply, r *flight.Report) (flight.Reply, error) {
	reply, err := ex.cfg.Ledger.Report(ex.telling.Context(), r)
	if err == nil {
		ex.cfg.Events.NoteReport(&reply, opened.Token.Number, r.Outcome)
	}
	return reply, err
}

// reportLate reports a hung handler once it returns after all.
func (ex *Executor) reportLate(reply flight.Reply, done <-chan caller.Ending) {
	if !ex.crew.enterMore() {
		return
	}
	go func() {
		defer ex.crew.leave()
		_, _ = ex.report(reply, reportOf(reply, <-done))
	}()
}

// reportHold bounds how long a claim is kept for a report that is on its way into the ledger.
const reportHold = 10 * time.Minute

// outlast keeps the session of an effect whose report could not be recorded yet, so that nobody takes it for lost while it
// is only late. A report that is not in the spool either is brought again and again. It ends with Close: a report that has
// come nowhere by then is lost with this process, and the recovery policy decides.
func (ex *Executor) outlast(t *trip, r *flight.Report, why error) {
	at := t.at
	t.at = nil
	if !ex.crew.enterMore() {
		at.lease.Release()
		return
	}
	go func() {
		defer ex.crew.leave()
		defer at.lease.Release()
		for why != nil && !errors.Is(why, ErrPending) && rest(ex.life, lastPoll) {
			_, why = ex.report(at.reply, r)
		}
		ctx, cancel := context.WithTimeout(ex.service, reportHold)
		defer cancel()
		f := at.reply.Flight
		for seen := f.Version; f.OpenAttempt() != nil && f.AttemptNumber() == at.reply.Token.Number; seen = f.Version {
			var err error
			if f, err = ex.cfg.Ledger.Wait(ctx, at.reply.Flight.ID, seen); err != nil || f == nil {
				return
			}
		}
	}()
}

// bodyOf is what is kept of an answer: a copy, because the bytes belong to whoever gave them. Too long a body is shortened
// and marked so; it never makes an attempt fail.
func bodyOf(end caller.Ending) flight.Blob {
	if !end.Outcome.Final() {
		return flight.Blob{}
	}
	body := end.Answer.Body
	if end.Outcome == flight.Refused && len(body) == 0 && end.Err != nil {
		return flight.NewBlob("text/plain; charset=utf-8", []byte(end.Err.Error()), flight.MaxReceiptBody)
	}
	return flight.NewBlob(flight.Text(end.Answer.ContentType), bytes.Clone(body), flight.MaxReceiptBody)
}

// provisional is the result of an effect whose outcome is not recorded yet, with a copy of the bytes, which belong to whoever
// gave them.
func provisional(opened flight.Reply, end caller.Ending) effect.Result {
	f := opened.Flight
	end.Answer.Body = bytes.Clone(end.Answer.Body)
	return effect.Result{
		Key: f.Key, FlightID: f.ID, Outcome: end.Outcome, Source: effect.Executed, Attempt: opened.Token.Number,
		Answer: end.Answer, Size: len(end.Answer.Body),
	}
}
