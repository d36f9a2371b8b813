package saga

import (
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// StateOf returns the state of a saga for people: one of the words of package wire.
func StateOf(v *View) string {
	switch v.Saga.State {
	case flight.StateSucceeded:
		return wire.SagaDone
	case flight.StateFailed:
		return wire.SagaUndone
	case flight.StateCancelled:
		return wire.SagaCancelled
	}
	for i := range v.Steps {
		if f, u := v.Steps[i], v.Undos[i]; f != nil && f.State == flight.StateInDoubt || u != nil && u.State == flight.StateInDoubt {
			return wire.SagaInDoubt
		}
	}
	switch v.Saga.Phase {
	case flight.PhaseCommitted:
		return wire.SagaCommitted
	case flight.PhaseUndoing:
		return wire.SagaUndoing
	}
	return wire.SagaRunning
}
