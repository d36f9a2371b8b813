package executor

import (
	"context"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/caller"
)

// lookUp asks the provider what happened and brings the verdict.
func (ex *Executor) lookUp(t *trip, reply flight.Reply) (again bool, result effect.Result, err error) {
	f := reply.Flight
	if t.call.LookUp == nil {
		return false, effect.Result{}, &effect.InDoubt{Key: t.call.Key, Version: f.Version, Cause: caller.NoLookUp}
	}
	if wait := ex.settle.Remaining(f); wait > 0 && !rest(&t.interest, wait) { // by this process's own clock
		return false, effect.Result{}, context.Cause(&t.interest)
	}
	verb, found := ex.ask(t, f)
	// A look-up changes nothing at the provider: if the process dies before its verdict is recorded, the next one asks
	// again.
	verdict, err := ex.insist(ex.asking.Context(), &flight.Verdict{
		Key: f.Key, Generation: f.Generation, Probe: reply.Probe, Result: verb,
		ExternalID: found.ExternalID, Body: flight.NewBlob(found.ContentType, found.Body, flight.MaxReceiptBody),
	})
	if err != nil {
		return false, effect.Result{}, answer.Unavailable(t.call.Key, err)
	}
	ex.settle.Forget(f.ID)
	ex.cfg.Events.Note(f.Key, verdict.Events)
	if answer.IsFinal(verdict.Flight) {
		result, err := ex.answer(verdict.Flight, &t.call, effect.Replayed)
		return false, result, err
	}
	if t.interest.Err() != nil {
		return false, effect.Result{}, context.Cause(&t.interest)
	}
	return true, effect.Result{}, nil
}

// ask calls the caller's look-up.
func (ex *Executor) ask(t *trip, f *flight.Flight) (flight.Verb, effect.Answer) {
	input, err := ex.writer.Input(&t.call.Submission, f)
	if err != nil {
		return flight.NoVerb, effect.Answer{}
	}
	newest := *f.Newest()
	look := caller.Look{
		Up: t.call.LookUp, Doer: ex, Timeout: f.Policy.AttemptTimeout, HungAfter: ex.cfg.HungAfter, Go: ex.crew.more,
		Spec: effect.Spec{
			Key: f.Key, Number: newest.Number, Input: input, Recovery: f.Policy.Recovery, Previous: &newest,
			IdempotencyKey: ex.writer.IdempotencyKey(f), FencingToken: ex.writer.SealToken(f, &newest), LeaseLost: lost(t.at.lease),
		},
	}
	return look.Ask(effect.WithTraceparent(ex.life, t.trace))
}

// pause waits as long as the ledger said that it is not worth asking again, or for a change of the flight.
func (ex *Executor) pause(t *trip, reply flight.Reply) error {
	wait := reply.Wait
	if f := reply.Flight; f.Looking() {
		wait = max(wait, ex.settle.Remaining(f))
	}
	if wait <= 0 {
		wait = jitter(firstPoll)
	}
	ex.waitChange(&t.interest, t.id, version(reply.Flight), wait)
	if t.interest.Err() != nil {
		return context.Cause(&t.interest)
	}
	return nil
}
