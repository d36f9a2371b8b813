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

// undoLate serves POST /v1/flights/{id}/undo-late: the undo of a step that has happened after its saga had taken it for not done, and was over.
// The saga does not change.
//
// Crash safety: there is no job, or there is the one; the same request again finds it.
func (sr *sagaRoutes) undoLate(w http.ResponseWriter, r *http.Request) error {
	req, bad := receive(sr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.UndoLateRequest])
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	f, err := sr.find(r)
	if err != nil {
		return err
	}
	def, v, err := sr.sagas.View(f)
	if errors.Is(err, saga.ErrNoDefinition) {
		err = &wire.Invalid{Code: wire.PreconditionFailed, Hint: "call the provider yourself", FieldError: wire.FieldError{Detail: "the definition of the saga was deleted, and the undo with it"}}
	}
	if err != nil {
		return about(f.Key, err)
	}
	step, late, input, err := saga.UndoLate(def, v, req.Step)
	if err == nil && len(input) > flight.MaxInput {
		err = &wire.Invalid{Code: wire.PayloadTooLarge, Hint: "call the provider yourself", FieldError: wire.FieldError{Detail: "the input of the undo is longer than 256 KiB"}}
	}
	if err != nil {
		return err // without a key: commands show the hint
	}
	// Point of no return: once this is committed, a worker undoes the step, also if this node dies.
	key, policy := undoLateKey(def, f.Key, step), def.PolicyOf(step, true)
	policy.Retention = f.Policy.Retention
	undone := fmt.Appendf(nil, "%s\n%s\n%s", input, late.ExternalID, late.Body.Digest) // another late success is a conflict, also if its undo has the same input
	reply, err := sr.store.operator.Propose(r.Context(), &flight.Submit{Key: key, Queue: &flight.Queue{}, Submission: flight.Submission{
		Fingerprint: flight.FingerprintBytes(undone), Input: flight.NewBlob(wire.TypeJSON, input, flight.MaxInput), Policy: policy, Requester: d.actor, Reason: d.reason}})
	switch {
	case err != nil:
		return about(f.Key, err)
	case reply.Decision == flight.DecisionReconciling:
		return about(key, &effect.Unavailable{Code: string(wire.Reconciling)})
	case reply.Decision == flight.DecisionConflict:
		return about(key, &wire.Invalid{Code: wire.Conflict, Hint: "see both with flightd flights get -o json of the step and of this key, and call the provider yourself",
			FieldError: wire.FieldError{Detail: "another late success of this step was undone before"}})
	case reply.Decision == flight.DecisionExpired:
		return about(key, &effect.Expired{Key: key})
	}
	status := http.StatusOK
	if reply.Changed {
		status = http.StatusCreated
	}
	out, err := sr.sagaOf(r, f)
	if err != nil {
		return about(f.Key, err)
	}
	setFlightHeaders(w.Header(), f)
	return writeJSON(w, r, status, out)
}
