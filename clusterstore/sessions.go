package clusterstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/flightd/flightd/flight"
)

// HeldBy returns up to limit flights held by a session, ordered by id, after the given one (the zero ID: from the
// first), and how many it holds in all, as of the last entry applied here.
func (r *reader) HeldBy(id flight.SessionID, after flight.ID, limit int) (flights []flight.ID, all int) {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.sessions.HeldFlights(id, after, limit)
}

// HeldCount returns how many flights all sessions hold together, as of the last entry applied here.
func (r *reader) HeldCount() int {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.sessions.HeldCount()
}

// Holders returns every session that holds a flight, in no order, as of the last entry applied here.
func (r *reader) Holders() []flight.Session {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return slices.Collect(r.fsm.sessions.Holders())
}

// applyEnded applies the proof that a session has ended. It records the session as ended, then changes up to
// flight.MaxEndSessionFlights of its flights, each by the rules for that flight alone. All of them get the version of this
// command, so a separate row lists the flights with an event of it.
//
// If the process dies between two EndSession of one session, the session is recorded as ended and still holds some
// flights. The caller proposes the proof again while reply.More is set.
func (mb *memBatch) applyEnded(c *flight.EndSession, at flight.Version) (flight.Reply, error) {
	reply := flight.Reply{Decision: c.Admit(&mb.fsm.header)}
	if reply.Decision != flight.DecisionAccepted {
		return reply, nil
	}
	mb.endSession(c.Session.ID)
	held, all := mb.fsm.sessions.HeldFlights(c.Session.ID, flight.ID{}, flight.MaxEndSessionFlights)
	var wrote []byte
	for _, id := range held {
		s, err := mb.dirtyFlight(id)
		if err != nil {
			return flight.Reply{}, err
		}
		ended, err := mb.applyToFlight(s, s.now.flight.Key, c, at)
		if err != nil {
			return flight.Reply{}, err
		}
		if len(ended.Events) > 0 {
			wrote = append(wrote, id[:]...)
		}
		reply.PerFlight = append(reply.PerFlight, ended)
	}
	if len(wrote) > 0 {
		mb.putSharedRow(touchedKey(nil, at), wrote)
	}
	reply.Changed, reply.More = len(held) > 0, all > len(held)
	return reply, nil
}

// endSession records a session as ended.
func (mb *memBatch) endSession(id flight.SessionID) {
	e := mb.fsm.sessions.MarkEnded(id, mb.fsm.header.Now)
	mb.putSharedRow(endedKey(nil, e.ID), binary.BigEndian.AppendUint64(nil, uint64(e.Until)))
}

// forgetSessions deletes the records of ended sessions for which no Open can be valid any more.
func (mb *memBatch) forgetSessions() {
	for _, e := range mb.fsm.sessions.ForgetExpired(mb.fsm.header.Now) {
		mb.rows = append(mb.rows, row{key: endedKey(nil, e.ID), deleted: true})
	}
}

// putSharedRow writes a row that belongs to no flight.
func (mb *memBatch) putSharedRow(key, value []byte) {
	mb.bytes += len(key) + len(value)
	mb.rows = append(mb.rows, row{key: key, value: value})
}

// loadLive builds the tables of sessions and of due flights from the live flights and the rows of ended sessions.
func (s *state) loadLive() (*flight.Sessions, *flight.Due, error) {
	sessions, due := flight.NewSessions(), flight.NewDue()
	var living []flight.ID
	err := s.scan(kindKey(liveRow), kindKey(liveRow+1), func(key, _ []byte) (bool, error) {
		_, id, err := splitOrderedKey(key)
		living = append(living, id)
		return true, err
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(living, func(a, b flight.ID) int { return bytes.Compare(a[:], b[:]) })
	err = s.records(living, func(r *record) {
		sessions.Update(nil, r.flight)
		due.Update(nil, r.flight)
	})
	if err != nil {
		return nil, nil, err
	}
	ended, err := s.endedSessions()
	for _, e := range ended {
		sessions.RestoreEnded(e)
	}
	return sessions, due, err
}

// endedSessions returns the recorded ended sessions, ordered by the time at which they are forgotten.
func (s *state) endedSessions() (ended []flight.EndedSession, err error) {
	err = s.scan(kindKey(endedRow), kindKey(endedRow+1), func(key, value []byte) (bool, error) {
		if len(value) != 8 {
			return false, fmt.Errorf("%w: the row of an ended session has a wrong length", ErrDamaged)
		}
		ended = append(ended, flight.EndedSession{ID: flight.SessionID(key[1:]), Until: flight.Time(binary.BigEndian.Uint64(value))})
		return true, nil
	})
	slices.SortStableFunc(ended, func(a, b flight.EndedSession) int { return cmp.Compare(a.Until, b.Until) })
	return ended, err
}
