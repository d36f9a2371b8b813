package driver

import (
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/saga"
)

// definition is a parsed document.
type definition struct {
	of  *flight.Document
	def *saga.Definition
}

// Definition returns the definition with which a saga was started. The error is saga.ErrNoDefinition if it was deleted, also if another one
// was stored under its name after the saga was over.
func (d *Driver) Definition(f *flight.Flight) (*saga.Definition, error) {
	doc := flight.DefinitionID(f.Key.Namespace(), f.Policy.Definition)
	d.mu.Lock()
	defer d.mu.Unlock()
	stored := d.cfg.Ledger.Document(doc)
	if stored == nil || stored.Body == nil || f.State.Terminal() && stored.CreatedAt > f.CreatedAt {
		delete(d.defs, doc)
		return nil, fmt.Errorf("%w: %s in namespace %s", saga.ErrNoDefinition, f.Policy.Definition, doc.Namespace)
	}
	if known := d.defs[doc]; known.def != nil && known.of.Version == stored.Version {
		return known.def, nil
	}
	def, err := saga.Parse(stored.Body)
	if err != nil {
		return nil, fmt.Errorf("definition %s: %w", f.Policy.Definition, err)
	}
	d.defs[doc] = definition{stored, def}
	return def, nil
}

// flights reads the flights of a saga's steps and undos.
func (d *Driver) flights(def *saga.Definition, f *flight.Flight) (*saga.View, error) {
	v := &saga.View{Now: d.cfg.Ledger.Now(), Saga: f, Steps: make([]*flight.Flight, len(def.Steps)), Undos: make([]*flight.Flight, len(def.Steps))}
	var err error
	for i := range def.Steps {
		if v.Steps[i], err = d.cfg.Ledger.Flight(keyOf(def, f, i, false).FlightID()); err != nil {
			return nil, err
		}
		undoing := f.Phase == flight.PhaseUndoing && v.Steps[i] != nil
		if def.Steps[i].Undo == nil || !undoing && d.cfg.Ledger.Header().RestoredFrom == 0 { // an undo may have run after the backup that was restored
			continue
		}
		if v.Undos[i], err = d.cfg.Ledger.Flight(keyOf(def, f, i, true).FlightID()); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// view reads what a decision looks at.
func (d *Driver) view(def *saga.Definition, f *flight.Flight) (*saga.View, error) {
	v, err := d.flights(def, f)
	if err == nil {
		v.Stepped = d.cfg.Ledger.Header().Steps
		err = d.loadBodies(v)
	}
	return v, err
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

// Flights returns the definition of a saga, and the flights of its steps and undos without the bytes of their bodies.
func (d *Driver) Flights(f *flight.Flight) (*saga.Definition, *saga.View, error) {
	def, err := d.Definition(f)
	if err != nil {
		return nil, nil, err
	}
	v, err := d.flights(def, f)
	return def, v, err
}

// View is Flights with the bytes of their bodies.
func (d *Driver) View(f *flight.Flight) (*saga.Definition, *saga.View, error) {
	def, v, err := d.Flights(f)
	if err == nil {
		err = d.loadBodies(v)
	}
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
		switch name, step := f.Key.StepName(), def.Steps[i].Name; name {
		case step, step + ".undo":
			input, err := saga.Resolve(def, v, i, name != step)
			if err != nil {
				err = &saga.InputError{Err: err}
			}
			return input, err
		}
	}
	return nil, fmt.Errorf("%s has no step %s", def.ID(), f.Key.StepName())
}
