package clusterstore

import (
	"context"
	"errors"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// ProposeAll proposes many commands and returns the replies in their order. The commands share log entries, so a
// thousand cost little more than one. They are not a transaction: each is applied on its own, in any order among
// other commands.
//
// With an error, some replies may be missing: a reply of DecisionNone means that the result of its command is
// unknown. Proposing the commands again is harmless. Errors are those of Propose.
func (s *Store) ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(commands))
	proposals := make([]*proposal, 0, len(commands))
	var failed error
	for _, c := range commands {
		p, err := s.enqueue(c)
		if err != nil {
			failed = err
			break
		}
		proposals = append(proposals, p)
	}
	for i, p := range proposals {
		reply, err := s.batcher.await(ctx, p)
		if errors.Is(err, effect.ErrAmbiguous) {
			reply, err = s.propose(ctx, p.command, p.data, err)
		}
		if replies[i] = reply; err != nil && failed == nil {
			failed = err
		}
	}
	return replies, failed
}

// enqueue queues a command without waiting for its result.
func (s *Store) enqueue(c flight.Command) (*proposal, error) {
	data, err := s.encode(c)
	if err != nil {
		return nil, err
	}
	if s.leading.Load() == nil {
		return nil, s.notLeaderError()
	}
	p := &proposal{command: c, data: data, done: make(chan error, 1)}
	return p, s.batcher.enqueue(p)
}
