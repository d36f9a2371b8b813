package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// undoLateKey is the key of the job that undoes the late success of a step. It follows from the saga and the step, so the job exists once. Its
// name is the action of the undo, so the job is one like every other.
func undoLateKey(def *saga.Definition, of flight.Key, step int) flight.Key {
	action, name := def.ActionOf(step, true), def.Steps[step].Name
	key, err := flight.NewKey(of.Namespace(), action, wire.LateUndoPrefix+name+":"+of.Name()+":"+of.BusinessID())
	if err != nil { // it is too long
		short, _ := def.KeyOf(of, step, false)
		key, _ = flight.NewKey(of.Namespace(), action, wire.LateUndoPrefix+short.FlightID().String())
	}
	return key
}

// lateUndo asks for the undo of a step.
type lateUndo struct {
	flightPath
	wire.UndoLateRequest
}

// undoLate undoes a step that has happened after its saga had taken it for not done, and was over. The saga does not change.
//
// Crash safety: there is no job, or there is the one; the same request again finds it.
func (sr *sagaRoutes) undoLate(q *Request, in *lateUndo) (*wire.Saga, error) {
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad != nil {
		return nil, bad
	}
	f, err := sr.find(q, in.Flight)
	if err != nil {
		return nil, err
	}
	def, v, err := sr.sagas.View(f)
	if errors.Is(err, saga.ErrNoDefinition) {
		err = &wire.Invalid{Code: wire.PreconditionFailed, Hint: "call the provider yourself", FieldError: wire.FieldError{Detail: "the definition of the saga was deleted, and the undo with it"}}
	}
	if err != nil {
		return nil, err
	}
	step, late, input, err := saga.UndoLate(def, v, in.Step)
	if err == nil && len(input) > flight.MaxInput {
		err = &wire.Invalid{Code: wire.PayloadTooLarge, Hint: "call the provider yourself", FieldError: wire.FieldError{Detail: "the input of the undo is longer than 256 KiB"}}
	}
	if err != nil {
		q.key = flight.Key{} // commands show the hint
		return nil, err
	}
	// Point of no return: once this is committed, a worker undoes the step, also if this node dies.
	key, policy := undoLateKey(def, f.Key, step), def.PolicyOf(step, true)
	policy.Retention = f.Policy.Retention
	undone := fmt.Appendf(nil, "%s\n%s\n%s", input, late.ExternalID, late.Body.Digest) // another late success is a conflict, also if its undo has the same input
	reply, err := sr.store.operator.Propose(q.Context(), &flight.Submit{Key: key, Queue: &flight.Queue{}, Submission: flight.Submission{
		Fingerprint: flight.FingerprintBytes(undone), Input: flight.NewBlob(wire.TypeJSON, input, flight.MaxInput), Policy: policy, Requester: who, Reason: why}})
	switch {
	case err != nil:
		return nil, err
	case reply.Decision == flight.DecisionReconciling:
		return nil, about(key, &effect.Unavailable{Code: string(wire.Reconciling)})
	case reply.Decision == flight.DecisionConflict:
		return nil, about(key, &wire.Invalid{Code: wire.Conflict, Hint: "see both with flightd flights get -o json of the step and of this key, and call the provider yourself",
			FieldError: wire.FieldError{Detail: "another late success of this step was undone before"}})
	case reply.Decision == flight.DecisionExpired:
		return nil, about(key, &effect.Expired{Key: key})
	}
	if reply.Changed {
		q.answerWith(http.StatusCreated)
	}
	q.describe(f)
	return sr.sagaOf(q.Request, f)
}
