package executor

import (
	"context"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
)

// stored answers a call from the ledger where that is final; done says whether it was. If not, it gives the generation that
// the call is about, 0 for a key of which this node knows nothing.
func (ex *Executor) stored(id flight.ID, call *effect.Call) (result effect.Result, generation uint32, done bool, err error) {
	f, err := ex.cfg.Ledger.Flight(id)
	switch {
	case err != nil:
		return effect.Result{}, 0, true, answer.Unavailable(call.Key, err)
	case f == nil:
		return effect.Result{}, 0, false, nil
	case f.State == flight.Absent, !f.State.Terminal() && !answer.Differs(f, &call.Submission):
		return effect.Result{}, f.Generation, false, nil
	}
	result, err = ex.answer(f, call, effect.Replayed)
	return result, f.Generation, true, err
}

// accompany waits for a trip that somebody else flies.
func (ex *Executor) accompany(ctx context.Context, t *trip, call effect.Call) (effect.Result, error) {
	if !t.call.Submission.Fingerprint.Matches(call.Submission.Fingerprint) {
		t.forget(context.Canceled)
		return effect.Result{}, &effect.Conflict{
			Key:    call.Key,
			Fields: answer.DifferingFields(t.call.Submission.Input, call.Submission.Input),
		}
	}
	result, err := t.await(ctx, call.Wait, effect.Joined)
	if t.call.Submission.Fingerprint == call.Submission.Fingerprint || !t.over() {
		return result, err
	}
	// One of the two declared no input: what the trip flew under may be a third one's. The ledger knows.
	if f, unread := ex.cfg.Ledger.Flight(t.id); unread != nil {
		return effect.Result{}, answer.Unavailable(call.Key, unread)
	} else if f != nil && (f.State.Terminal() || answer.Differs(f, &call.Submission)) {
		return ex.answer(f, &call, effect.Joined)
	}
	return result, err
}

// answer turns a flight that is final into what its callers get.
func (ex *Executor) answer(f *flight.Flight, call *effect.Call, as effect.Source) (effect.Result, error) {
	if err := ex.writer.Final(f, call.Key, &call.Submission); err != nil {
		return effect.Result{}, err
	}
	return ex.writer.Receipt(f, nil, as)
}
