package clusterstore

import (
	"context"

	"github.com/flightd/flightd/flight"
)

// ProposeAll brings many commands into the ledger and gives the answers in their order. They share log entries, so that
// a thousand cost little more than one; they are no transaction: each is applied by itself, in any order among others.
//
// With an error some have no answer, which is a reply of NoDecision: what became of those is not known, and proposing
// them again does no harm. Errors as of Propose.
func (s *Store) ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(commands))
	proposals := make([]*proposal, 0, len(commands))
	var failed error
	for _, c := range commands {
		p, err := s.begin(c)
		if err != nil {
			failed = err
			break
		}
		proposals = append(proposals, p)
	}
	for i, p := range proposals {
		reply, err := s.packer.await(ctx, p)
		if ambiguous(err) {
			reply, err = s.propose(ctx, p.command, p.data, err)
		}
		if replies[i] = reply; err != nil && failed == nil {
			failed = err
		}
	}
	return replies, failed
}

// begin puts a command into the queue and does not wait for its answer.
func (s *Store) begin(c flight.Command) (*proposal, error) {
	data, err := s.encode(c)
	if err != nil {
		return nil, err
	}
	if s.leading.Load() == nil {
		return nil, s.notLeading()
	}
	p := &proposal{command: c, data: data, done: make(chan error, 1)}
	return p, s.packer.enqueue(p)
}
