package clusterstore

import (
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// RaiseFeatureLevel raises the feature level of the ledger to the highest one that all voters read. It does nothing if
// the ledger has that level already. From the committed entry on, an older build rejects this log and this state. Then the
// clock makes the step that the lower level could not record. Errors: ErrFeatureLevel when a voter has not said what it
// reads, and those of Propose.
func (s *Store) RaiseFeatureLevel(ctx context.Context) error {
	level := flight.MaxLevel
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
	if level > s.fsm.published.Load().header.FeatureLevel() {
		if _, err := s.Propose(ctx, &flight.RaiseLevel{Level: level}); err != nil {
			return err
		}
	}
	return s.stepClock(ctx)
}
