package driver

import (
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/saga"
)

// Definition returns the definition with which a saga was started.
func (d *Driver) Definition(f *flight.Flight) (*saga.Definition, error) {
	return d.definition(f.Key.Namespace(), f.Policy.Definition)
}

func (d *Driver) definition(namespace, id string) (*saga.Definition, error) {
	doc := saga.DocumentID(namespace, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	if def := d.defs[doc]; def != nil { // a definition never changes
		return def, nil
	}
	stored := d.cfg.Ledger.Document(doc)
	if stored == nil || stored.Body == nil {
		return nil, fmt.Errorf("the ledger has no definition %s in namespace %s", id, namespace)
	}
	def, err := saga.Decode(stored.Body)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", id, err)
	}
	d.defs[doc] = def
	return def, nil
}

// view reads what a decision looks at.
func (d *Driver) view(def *saga.Definition, f *flight.Flight) (*saga.View, error) {
	v := &saga.View{Now: d.cfg.Ledger.Now(), Saga: f, Steps: make([]*flight.Flight, len(def.Steps)), Undos: make([]*flight.Flight, len(def.Steps))}
	var err error
	for i := range def.Steps {
		if v.Steps[i], err = d.cfg.Ledger.Flight(def.StepKey(f.Key, i).FlightID()); err != nil {
			return nil, err
		}
		if v.Steps[i] == nil || def.Steps[i].Undo == nil || f.Phase != flight.PhaseUndoing {
			continue
		}
		if v.Undos[i], err = d.cfg.Ledger.Flight(def.UndoKey(f.Key, i).FlightID()); err != nil {
			return nil, err
		}
	}
	if !def.HasConditions() {
		return v, nil
	}
	if v.Input, err = d.cfg.Ledger.Input(f); err != nil {
		return nil, err
	}
	v.Bodies = func(step int) []byte {
		body, unread := d.cfg.Ledger.ReceiptBody(v.Steps[step])
		if unread != nil {
			err = unread
		}
		return body
	}
	return v, nil
}

// View returns a saga as people see it: its definition, and the flights of its steps and undos by the position of the step; nil: the
// key was never used.
func (d *Driver) View(f *flight.Flight) (*saga.Definition, *saga.View, error) {
	def, err := d.Definition(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := d.view(def, f)
	return def, v, err
}

// StepInput returns the input of the job of a step or an undo. It is made of the input of its saga and the receipts of the steps before
// it, none of which change while the saga is not over: it is the same each time.
func (d *Driver) StepInput(f *flight.Flight) ([]byte, error) {
	s, err := d.cfg.Ledger.Flight(f.Key.Saga().FlightID())
	if err != nil {
		return nil, err
	}
	if s == nil || !s.Policy.Saga {
		return nil, fmt.Errorf("%s is a step of no saga", f.Key)
	}
	def, err := d.Definition(s)
	if err != nil {
		return nil, err
	}
	input, err := d.cfg.Ledger.Input(s)
	if err != nil {
		return nil, err
	}
	return def.InputOf(f.Key.StepName(), input, func(step int) (saga.Result, error) {
		of, err := d.cfg.Ledger.Flight(def.StepKey(s.Key, step).FlightID())
		if err != nil || of == nil || of.Receipt == nil {
			return saga.Result{}, err
		}
		body, err := d.cfg.Ledger.ReceiptBody(of)
		return saga.Result{Outcome: of.Receipt.Outcome.String(), ExternalID: of.Receipt.ExternalID, Body: body, Truncated: of.Receipt.Truncated()}, err
	})
}
