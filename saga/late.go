package saga

import (
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// IsLate reports whether a step of an undone saga has happened, and no undo has begun since: its success came after the driver's last look.
func IsLate(d *Definition, v *View, step int) bool { return lateSuccess(d, v, step) != nil }

// lateSuccess returns the receipt of the late success of a step; nil: there is none. The ledger stores no body of a report that came after
// another decision, so the receipt has none then.
func lateSuccess(d *Definition, v *View, step int) *flight.Receipt {
	f, u := v.Steps[step], v.Undos[step]
	if v.Saga.State != flight.StateFailed || d.Steps[step].Undo == nil || !created(f) {
		return nil
	}
	for i := len(f.Evidence) - 1; i >= 0; i-- {
		e := &f.Evidence[i]
		if e.Outcome == flight.OutcomeSucceeded && (f.Receipt == nil || !f.Receipt.SameEffect(e.Outcome, e.ExternalID, e.Digest)) && (!created(u) || e.At >= u.CreatedAt) {
			return &flight.Receipt{Outcome: flight.OutcomeSucceeded, ExternalID: e.ExternalID, Body: flight.Blob{Digest: e.Digest}}
		}
	}
	if f.State == flight.StateSucceeded && (!created(u) || u.Place != nil && f.Ended.After(u.Place.Since)) {
		return f.Receipt
	}
	return nil
}

// seenSuccess returns the last success that was reported of a step without a receipt before its undo was submitted; nil: there is none. Those that
// come later are late, so the undo has the same input each time.
func seenSuccess(f, undo *flight.Flight) *flight.Evidence {
	for i := len(f.Evidence) - 1; i >= 0 && created(undo); i-- {
		if e := &f.Evidence[i]; e.Outcome == flight.OutcomeSucceeded && e.At < undo.CreatedAt {
			return e
		}
	}
	return nil
}

// UndoLate returns the position of a step with a late success, the success, and the input of the job that undoes it: that of its undo, with what is
// known of the late success. It returns a *wire.Invalid if there is nothing to undo.
func UndoLate(d *Definition, v *View, name string) (step int, late *flight.Receipt, input []byte, err error) {
	step = d.Index(name)
	rejected := func(hint, format string, args ...any) (int, *flight.Receipt, []byte, error) {
		return step, nil, nil, &wire.Invalid{Code: wire.PreconditionFailed, Hint: hint, FieldError: wire.FieldError{Detail: fmt.Sprintf(format, args...)}}
	}
	if step < 0 {
		bad := wire.BadField("/step", "%s has no step %.40q", d.ID(), name)
		bad.Hint = "see its steps: flightd sagas get " + v.Saga.Key.String()
		return step, nil, nil, bad
	}
	switch late = lateSuccess(d, v, step); {
	case !v.Saga.State.Terminal():
		return rejected("wait until it is over: until then it undoes late successes itself, if it is undone", "the saga is not over")
	case v.Saga.State == flight.StateSucceeded:
		return rejected("call the provider yourself if the effect must go", "the saga is done: nothing of it is undone")
	case d.Steps[step].Undo == nil:
		return rejected("call the provider yourself if the effect must go", "the step %s has no undo", name)
	case late == nil:
		return rejected("see what is known: flightd flights get "+v.Saga.Key.String()+"#"+name+" -o json",
			"no success of the step %s has come since it was undone, or was taken for not done", name)
	default:
		shown := *v.Steps[step]
		if shown.Receipt != late { // the ledger has no body of it
			shown.State, shown.Receipt = flight.StateCancelled, late
		}
		as := *v
		as.Steps = append([]*flight.Flight(nil), v.Steps...)
		as.Steps[step] = &shown
		if input, err = Resolve(d, &as, step, true); err != nil {
			return rejected("call the provider yourself", "the input of the undo cannot be made: %v", err)
		}
		return step, late, input, nil
	}
}
