package clusterstore

import "github.com/flightd/flightd/flight"

// Overdue returns at most limit flights that need a WakeUp by now, as of the last entry applied here.
func (s *Store) Overdue(limit int) (overdue []flight.ID) {
	header := s.Header()
	header.Now = s.Now()
	s.fsm.tablesMu.RLock()
	defer s.fsm.tablesMu.RUnlock()
	for id := range s.fsm.due.Overdue(&header) {
		if len(overdue) == limit {
			break
		}
		overdue = append(overdue, id)
	}
	return overdue
}
