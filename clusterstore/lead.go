package clusterstore

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// watchLeadership follows raft's word about who leads. It ends when the store closes.
func (s *Store) watchLeadership() {
	defer s.workers.Done()
	for {
		select {
		case leads := <-s.notify:
			s.follow(leads)
		case <-s.closing:
			return
		}
	}
}

func (s *Store) follow(leads bool) {
	if !leads {
		if s.leading.Swap(nil) != nil {
			s.tellLeader(false)
		}
		return
	}
	if lead := s.takeOver(); lead != nil {
		s.leading.Store(lead)
		s.tellLeader(true)
	}
}

func (s *Store) tellLeader(leading bool) {
	s.leads.broadcast()
	if f := s.cfg.Events.Leader; f != nil {
		f(leading)
	}
}

// takeOver begins a term as leader: the clock starts, and an entry of our own goes through the log. When it is applied
// here, everything that earlier leaders committed is, and raft's commit index can be believed.
func (s *Store) takeOver() *leadership {
	term := s.raft.CurrentTerm()
	data, err := flight.Encode(&flight.Tick{})
	if err != nil {
		return nil
	}
	s.clock.lead(s.Header().Now, false)
	if _, err := s.packer.do(context.Background(), &flight.Tick{}, data); err != nil {
		return nil // lost again, or closing; raft will tell
	}
	s.startClock()
	if s.raft.CurrentTerm() != term || s.raft.State() != raft.Leader {
		return nil
	}
	return &leadership{term: term}
}

// startClock starts the clock at the time of the last entry, or at the wall clock's. No entry is stamped with it before it is noted
// that it jumped.
func (s *Store) startClock() {
	was, fresh := s.Header().Now, s.Header().Deployment == ""
	s.clock.recall(s.readJump())
	now := s.clock.lead(was, s.cfg.peers == nil)
	if fresh {
		s.clock.forget()
	}
	s.noteJump()
	if f := s.cfg.Events.Jumped; f != nil && !fresh && now > was+jumpWorthTelling {
		f(was, now)
	}
}

// jumpWorthTelling is one minute of ledger time.
const jumpWorthTelling = 60_000

// logGrew is called after every append.
func (s *Store) logGrew() {
	if s.log.Appended()-s.snapped.Load() < s.cfg.Log.SnapshotBytes {
		return
	}
	select {
	case s.snapshot <- struct{}{}:
	default: // one is on its way
	}
}

// takeSnapshots takes one whenever the log has grown enough, so that neither a quiet ledger takes any nor a busy one
// fills the disk. It ends when the store closes.
func (s *Store) takeSnapshots() {
	defer s.workers.Done()
	for {
		select {
		case <-s.snapshot:
			s.takeSnapshot()
		case <-s.closing:
			return
		}
	}
}

func (s *Store) takeSnapshot() error {
	start := time.Now()
	s.snapped.Store(s.log.Appended()) // also when it fails: the next try comes after as much again
	err := s.raft.Snapshot().Error()
	if err != nil {
		index, _ := s.Applied()
		s.cfg.Logger.Warn("clusterstore: no snapshot was taken", "error", err)
		if f := s.cfg.Events.Snapshot; f != nil {
			f(index, time.Since(start), err)
		}
	}
	return err
}
