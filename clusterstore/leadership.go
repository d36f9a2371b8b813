package clusterstore

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// watchLeadership handles raft's leadership notifications until the store closes. Close waits for it.
func (s *Store) watchLeadership() {
	defer s.workers.Done()
	for {
		select {
		case leads := <-s.raftNotify:
			if !leads {
				if s.leading.Swap(nil) != nil {
					s.notifyLeadership(false)
				}
			} else if lead := s.becomeLeader(); lead != nil {
				s.leading.Store(lead)
				s.notifyLeadership(true)
			}
		case <-s.closing:
			return
		}
	}
}

func (s *Store) notifyLeadership(leading bool) {
	s.leadershipChanged.broadcast()
	if f := s.cfg.Events.Leader; f != nil {
		f(leading)
	}
}

// becomeLeader starts a term as leader: it starts the clock and commits an entry of this term. When that entry is
// applied here, so is everything that earlier leaders committed, and raft's commit index is valid for Barrier.
func (s *Store) becomeLeader() *leadership {
	term := s.raft.CurrentTerm()
	data, err := flight.Encode(&flight.Tick{})
	if err != nil {
		return nil
	}
	s.clock.lead(s.Header().Now, false)
	if _, err := s.batcher.propose(context.Background(), &flight.Tick{}, data); err != nil {
		return nil // leadership lost again, or closing; raft sends a notification
	}
	s.startClock()
	if s.raft.CurrentTerm() != term || s.raft.State() != raft.Leader {
		return nil
	}
	return &leadership{term: term}
}

// startClock starts the clock at the time of the last entry, or at the wall clock if that is later. The step is
// stored before any entry carries the new time.
func (s *Store) startClock() {
	was, fresh := s.Header().Now, s.Header().Deployment == ""
	s.clock.restoreStep(s.readClockStep())
	now := s.clock.lead(was, s.cfg.peers == nil)
	if fresh {
		s.clock.clearStep()
	}
	s.writeClockStep()
	if f := s.cfg.Events.ClockStepped; f != nil && !fresh && now > was+minReportedStep {
		f(was, now)
	}
}

// minReportedStep is the smallest step that is reported to Events.ClockStepped: one minute of ledger time.
const minReportedStep = 60_000

// onLogGrowth requests a snapshot after LogConfig.SnapshotBytes. The log calls it after every append.
func (s *Store) onLogGrowth() {
	if s.log.Appended()-s.snapshotBytes.Load() < s.cfg.Log.SnapshotBytes {
		return
	}
	select {
	case s.snapshotDue <- struct{}{}:
	default: // already requested
	}
}

// runSnapshots takes a snapshot whenever the log has grown by LogConfig.SnapshotBytes: an idle ledger takes none, and
// a busy one cannot fill the disk. It ends when the store closes; Close waits for it.
func (s *Store) runSnapshots() {
	defer s.workers.Done()
	for {
		select {
		case <-s.snapshotDue:
			s.takeSnapshot()
		case <-s.closing:
			return
		}
	}
}

func (s *Store) takeSnapshot() error {
	start := time.Now()
	s.snapshotBytes.Store(s.log.Appended()) // also before a failure: the next attempt follows after as many bytes
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
