package flight

import (
	"bytes"
	"iter"
	"slices"
)

// Sessions is the session state of a ledger's state machine: the flights that each session holds, and the sessions that have
// ended lately. The first part is an index, rebuilt from the flights at each start; the second part is state of its own, and
// is stored in every snapshot. Sessions is not safe for concurrent use.
type Sessions struct {
	held  map[SessionID]*sessionFlights
	count int
	in    map[string]int // held flights by namespace
	ended map[SessionID]Time
	queue []EndedSession // ordered by Until
}

type sessionFlights struct {
	session Session
	flights map[ID]struct{}
}

// EndedSession is a session under which nothing opens any more. It is remembered until every Open that names it has
// expired.
type EndedSession struct {
	ID    SessionID
	Until Time
}

// NewSessions returns the session state of a ledger without flights.
func NewSessions() *Sessions {
	return &Sessions{held: make(map[SessionID]*sessionFlights), in: make(map[string]int), ended: make(map[SessionID]Time)}
}

// Update replaces a flight in the index by its new version. Either may be nil.
func (s *Sessions) Update(before, after *Flight) {
	old, now := before.Holder(), after.Holder()
	if old != nil && now != nil && old.ID == now.ID {
		return
	}
	if old != nil {
		if h := s.held[old.ID]; h != nil {
			delete(h.flights, before.ID)
			s.countHeld(before.Key, -1)
			if len(h.flights) == 0 {
				delete(s.held, old.ID)
			}
		}
	}
	if now != nil {
		h := s.held[now.ID]
		if h == nil {
			h = &sessionFlights{session: *now, flights: make(map[ID]struct{})}
			s.held[now.ID] = h
		}
		h.flights[after.ID] = struct{}{}
		s.countHeld(after.Key, 1)
	}
}

func (s *Sessions) countHeld(key Key, change int) {
	namespace := key.Namespace()
	s.count += change
	if s.in[namespace] += change; s.in[namespace] == 0 {
		delete(s.in, namespace)
	}
}

// HeldIn is the number of flights of a namespace that sessions hold.
func (s *Sessions) HeldIn(namespace string) int { return s.in[namespace] }

// HeldFlights returns at most limit flights that a session holds, in the order of their ids, starting after the given id (the
// zero ID: from the first), and the number of all flights that it holds.
func (s *Sessions) HeldFlights(id SessionID, after ID, limit int) (flights []ID, all int) {
	h := s.held[id]
	if h == nil || limit <= 0 {
		return nil, h.count()
	}
	// A session may hold many more than limit flights: only the first ones are sorted.
	last, bounded := ID{}, false
	for f := range h.flights {
		if after != (ID{}) && compareIDs(f, after) <= 0 || bounded && compareIDs(f, last) > 0 {
			continue
		}
		if flights = append(flights, f); len(flights)-limit >= limit {
			slices.SortFunc(flights, compareIDs)
			flights = flights[:limit]
			last, bounded = flights[limit-1], true
		}
	}
	slices.SortFunc(flights, compareIDs)
	return flights[:min(limit, len(flights))], h.count()
}

func (f *sessionFlights) count() int {
	if f == nil {
		return 0
	}
	return len(f.flights)
}

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }

// HeldCount is the number of flights that all sessions together hold.
func (s *Sessions) HeldCount() int { return s.count }

// Holders iterates over the sessions that hold a flight, in no order.
func (s *Sessions) Holders() iter.Seq[Session] {
	return func(yield func(Session) bool) {
		for _, h := range s.held {
			if !yield(h.session) {
				return
			}
		}
	}
}

// MarkEnded remembers a session as ended until MaxOpenLife from now. A repeat extends that time.
func (s *Sessions) MarkEnded(id SessionID, now Time) EndedSession {
	e := EndedSession{ID: id, Until: now.Add(MaxOpenLife)}
	s.RestoreEnded(e)
	return e
}

// RestoreEnded adds an ended session from a snapshot. Calls must be in the order of Until.
func (s *Sessions) RestoreEnded(e EndedSession) {
	if s.ended[e.ID] < e.Until {
		s.ended[e.ID] = e.Until
		s.queue = append(s.queue, e)
	}
}

// HasEnded reports whether a session is remembered as ended.
func (s *Sessions) HasEnded(id SessionID, now Time) bool {
	until, ok := s.ended[id]
	return ok && until >= now
}

// EndedSessions returns the sessions that are remembered as ended, in the order of Until.
func (s *Sessions) EndedSessions() []EndedSession {
	return slices.DeleteFunc(slices.Clone(s.queue), func(e EndedSession) bool { return s.ended[e.ID] != e.Until })
}

// ForgetExpired removes the ended sessions whose Until has passed, and returns them.
func (s *Sessions) ForgetExpired(now Time) (forgotten []EndedSession) {
	n := 0
	for ; n < len(s.queue) && s.queue[n].Until < now; n++ {
		if e := s.queue[n]; s.ended[e.ID] == e.Until {
			delete(s.ended, e.ID)
			forgotten = append(forgotten, e)
		}
	}
	clear(s.queue[:n])
	s.queue = s.queue[n:]
	return forgotten
}
