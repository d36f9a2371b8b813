package flight

import "iter"

// sagaSteps is what Due knows of a saga that has a driver's work to do, or a step that is not over.
type sagaSteps struct {
	live   int   // steps and undos that are not over
	ready  bool  // the saga was never driven, was woken, or has an open attempt, whose driver may have died
	asleep bool  // its driver has suspended it
	wake   uint8 // Wake.Live
}

// isDue reports whether the saga has to be driven on. A saga that sleeps has to be when a step that it waits for is over. All of this follows
// from flights that are not over, so that every node finds the same sagas after every start.
func (s *sagaSteps) isDue() bool { return s.ready || s.asleep && s.live < int(s.wake) }

// updateSaga is the part of Update for sagas and their steps.
func (d *Due) updateSaga(before, after *Flight) {
	id, change := ID{}, 0
	for i, f := range [...]*Flight{before, after} {
		switch {
		case f == nil:
		case f.Key.IsStep():
			id = f.Key.Saga().FlightID()
			if f.isLive() {
				change += 2*i - 1
			}
		case f.Policy.Saga:
			id = f.ID
			if f.isLive() {
				d.countDefinition(f, 2*i-1)
			}
		}
	}
	if id == (ID{}) {
		return
	}
	s := d.sagas[id]
	if s == nil {
		s = new(sagaSteps)
		d.sagas[id] = s
	}
	s.live += change
	if before != nil && before.ID == id || after != nil && after.ID == id {
		s.ready, s.asleep, s.wake = false, false, 0
		switch {
		case after == nil:
		case after.State == StateWaiting:
			s.asleep, s.wake = true, after.Wake.Live
		default:
			s.ready = after.State == StateReady || after.State == StateRunning
		}
	}
	_, was := d.dueSagas[id]
	switch due := s.isDue(); {
	case due && !was:
		d.dueSagas[id] = struct{}{}
		if d.SagaDue != nil {
			d.SagaDue()
		}
	case !due:
		delete(d.dueSagas, id)
	}
	if !s.ready && !s.asleep && s.live == 0 {
		delete(d.sagas, id)
	}
}

// countDefinition adds n to the number of sagas that use the definition of f.
func (d *Due) countDefinition(f *Flight, n int) {
	id := DefinitionID(f.Key.Namespace(), f.Policy.Definition)
	if d.sagasOf[id] += n; d.sagasOf[id] == 0 {
		delete(d.sagasOf, id)
	}
}

// SagasOf is the number of sagas that are not over and use a definition. Every node computes the same number: it depends on the flights
// alone.
func (d *Due) SagasOf(definition DocumentID) int { return d.sagasOf[definition] }

// isLive reports whether the flight is not over.
func (f *Flight) isLive() bool { return f != nil && f.State != StateAbsent && !f.State.Terminal() }

// DueSagas iterates over the sagas that have to be driven on, in no order.
func (d *Due) DueSagas() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for id := range d.dueSagas {
			if !yield(id) {
				return
			}
		}
	}
}
