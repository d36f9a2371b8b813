package flight

import "iter"

// sagaSteps is what Due knows of a saga that is not over, or of one of whose steps that is true.
type sagaSteps struct {
	live   int   // steps and undos that are not over
	saga   bool  // the saga itself is not over
	asleep bool  // its driver has suspended it
	wake   uint8 // Wake.Live
}

// isDue reports whether the saga has to be driven on: it was never driven, its driver has died before it suspended it, or a step that it
// waits for is over. It is a function of flights that are not over, so that every node finds the same sagas after every start.
func (s *sagaSteps) isDue() bool { return s.saga && (!s.asleep || s.live < int(s.wake)) }

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
		s.saga = after.isLive()
		if s.asleep, s.wake = s.saga && after.State == StateWaiting, 0; s.asleep {
			s.wake = after.Wake.Live
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
	if !s.saga && s.live == 0 {
		delete(d.sagas, id)
	}
}

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
