package clusterstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// watchLeadership handles raft's leadership notifications until the store closes. Close waits for it.
func (s *Store) watchLeadership() {
	defer s.workers.Done()
	for {
		select {
		case leads := <-s.raftNotify:
			s.awaitsClocks = false
			if leads {
				s.startLeading()
			} else if s.leading.Swap(nil) != nil {
				s.notifyLeadership(false)
			}
		case <-s.clocksSet:
			s.followPeerClocks()
		case <-s.closing:
			return
		}
	}
}

// startLeading makes this node accept proposals, unless it loses the leadership before.
func (s *Store) startLeading() {
	if lead := s.becomeLeader(); lead != nil {
		s.leading.Store(lead)
		s.notifyLeadership(true)
	}
}

func (s *Store) notifyLeadership(leading bool) {
	s.leadershipChanged.Broadcast()
	if f := s.cfg.Events.Leader; f != nil {
		f(leading)
	}
}

// becomeLeader starts a term as leader: it commits an entry of this term, steps the clock, and gives a new deployment its
// name and secret. When that first entry is applied here, so is everything that earlier leaders committed, and raft's commit
// index is valid for Barrier.
//
// If the process dies after any of these entries, or two leaders propose a Bootstrap, the next leader goes on: of several
// Bootstraps only the first counts.
func (s *Store) becomeLeader() *leadership {
	term := s.raft.CurrentTerm()
	if s.cfg.Peers != nil {
		s.clock.setVoters(s.voterCount())
	}
	s.clock.lead(s.Header().Now)
	if err := s.proposeAtStart(context.Background(), &flight.Tick{}); err != nil {
		return nil // leadership lost again, or closing; raft sends a notification
	}
	s.clock.lead(s.Header().Now)
	if err := s.stepClock(context.Background()); err != nil {
		return nil
	}
	if s.Header().Deployment == "" {
		if s.awaitsClocks = !s.clock.hasMajority(); s.awaitsClocks {
			return nil // nobody knows what time it is, and the ledger's time never goes back
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // it never returns an error
		if err := s.proposeAtStart(context.Background(), &flight.Bootstrap{Deployment: uuid.NewString(), Secret: secret}); err != nil {
			return nil
		}
	}
	if s.raft.CurrentTerm() != term || s.raft.State() != raft.Leader {
		return nil
	}
	return &leadership{term: term}
}

// proposeAtStart proposes a command of becomeLeader, while this node is not yet ready for other proposals. It waits while a
// transfer of an earlier term is not over: raft rejects commands as long as its target does not answer, and sends no
// notification when it accepts them again.
func (s *Store) proposeAtStart(ctx context.Context, c flight.Command) error {
	data, err := flight.Encode(c)
	if err != nil {
		return err
	}
	for {
		_, err = s.batcher.propose(ctx, c, data)
		if !errors.Is(err, ErrUnavailable) || !s.waitRetry(ctx, nil) {
			return err
		}
	}
}

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

func (s *Store) takeSnapshot() error { return s.takeSnapshotKeeping(s.cfg.Log.Trailing) }

// takeSnapshotKeeping takes a snapshot and keeps at least the given bytes of the newest entries in the log. Raft counts
// entries, so the bytes are converted to a number of entries, at least one.
func (s *Store) takeSnapshotKeeping(bytes uint64) error {
	s.snapshotMu.Lock()
	defer s.snapshotMu.Unlock()
	start := time.Now()
	s.snapshotBytes.Store(s.log.Appended()) // also before a failure: the next attempt follows after as many bytes
	settings := s.raft.ReloadableConfig()
	settings.TrailingLogs = max(1, s.log.Newest(bytes))
	err := s.raft.ReloadConfig(settings)
	if err == nil {
		err = s.raft.Snapshot().Error()
	}
	if err != nil {
		index, _ := s.Applied()
		s.cfg.Logger.Warn("clusterstore: no snapshot was taken", "error", err)
		if f := s.cfg.Events.Snapshot; f != nil {
			f(index, time.Since(start), err)
		}
	}
	return err
}

// RaiseFeatureLevel raises the feature level of the ledger to the highest one that all voters read. It does nothing if
// the ledger has that level already. From the committed entry on, an older build rejects this log and this state. Errors:
// ErrFeatureLevel when the highest level of a voter is unknown, and the errors of Propose.
func (s *Store) RaiseFeatureLevel(ctx context.Context) error {
	level := s.cfg.Limits.levels.Max
	future := s.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return classifyRaftError(err)
	}
	var levels map[string]uint32
	if p := s.cfg.Peers; p != nil && p.Levels != nil {
		levels = p.Levels()
	}
	for _, voter := range future.Configuration().Servers {
		if string(voter.ID) == s.cfg.NodeID {
			continue
		}
		read, known := levels[string(voter.ID)]
		if !known {
			return fmt.Errorf("%w: voter %s has not said which level it reads", ErrFeatureLevel, voter.ID)
		}
		level = min(level, read)
	}
	if was := s.fsm.published.Load().header.FeatureLevel(); level > was {
		if _, err := s.Propose(ctx, &flight.RaiseLevel{Level: level}); err != nil {
			return err
		}
		s.cfg.Logger.Info("the feature level of the ledger rose; an older build cannot open it any more", "was", was, "level", level)
	}
	return nil
}
