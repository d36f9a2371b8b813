package driver

import (
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/saga"
)

// Definition returns the definition with which a saga was started.
func (d *Driver) Definition(f *flight.Flight) (*saga.Definition, error) {
	doc := flight.DocumentID{Namespace: f.Key.Namespace(), Kind: flight.KindSaga, Name: saga.DocumentNameOf(f.Policy.Definition)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if def := d.defs[doc]; def != nil {
		return def, nil
	}
	stored := d.cfg.Ledger.Document(doc)
	if stored == nil || stored.Body == nil {
		return nil, fmt.Errorf("the ledger has no definition %s in namespace %s", f.Policy.Definition, doc.Namespace)
	}
	def, err := saga.Parse(stored.Body)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", f.Policy.Definition, err)
	}
	d.defs[doc] = def
	return def, nil
}

// view reads what a decision looks at.
func (d *Driver) view(def *saga.Definition, f *flight.Flight) (*saga.View, error) {
	v := &saga.View{Now: d.cfg.Ledger.Now(), Saga: f, Steps: make([]*flight.Flight, len(def.Steps)), Undos: make([]*flight.Flight, len(def.Steps))}
	var err error
	for i := range def.Steps {
		if v.Steps[i], err = d.cfg.Ledger.Flight(keyOf(def, f, i, false).FlightID()); err != nil {
			return nil, err
		}
		if f.Phase != flight.PhaseUndoing || v.Steps[i] == nil || def.Steps[i].Undo == nil {
			continue
		}
		if v.Undos[i], err = d.cfg.Ledger.Flight(keyOf(def, f, i, true).FlightID()); err != nil {
			return nil, err
		}
	}
	return v, d.loadBodies(v)
}

// loadBodies reads the bytes that conditions and inputs refer to, before a decision: one that cannot be read must not look like one
// that does not exist.
func (d *Driver) loadBodies(v *saga.View) (err error) {
	bodies := make([][]byte, len(v.Steps))
	v.Bodies = func(step int) []byte { return bodies[step] }
	for i, f := range v.Steps {
		if f == nil || f.Receipt == nil {
			continue
		}
		if bodies[i], err = d.cfg.Ledger.ReceiptBody(f); err != nil {
			return err
		}
	}
	v.Input, err = d.cfg.Ledger.Input(v.Saga)
	return err
}

// View returns the definition of a saga, and the flights of its steps and undos.
func (d *Driver) View(f *flight.Flight) (*saga.Definition, *saga.View, error) {
	def, err := d.Definition(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := d.view(def, f)
	return def, v, err
}

// StepInput returns the input of the job of a step or an undo. It is made of the input of its saga and the receipts of the steps before
// it, none of which change while the saga is not over: it is the same each time. *saga.InputError: it cannot be made, now or later.
func (d *Driver) StepInput(f *flight.Flight) ([]byte, error) {
	s, err := d.cfg.Ledger.Flight(f.Key.Saga().FlightID())
	if err != nil {
		return nil, err
	}
	if s == nil || !s.Policy.Saga {
		return nil, fmt.Errorf("%s is a step of no saga", f.Key)
	}
	def, v, err := d.View(s)
	if err != nil {
		return nil, err
	}
	for i := range def.Steps {
		for _, undo := range [...]bool{false, true} {
			if keyOf(def, s, i, undo) == f.Key {
				input, err := saga.Resolve(def, v, i, undo)
				if err != nil {
					err = &saga.InputError{Err: err}
				}
				return input, err
			}
		}
	}
	return nil, fmt.Errorf("%s has no step %s", def.ID(), f.Key.StepName())
}
