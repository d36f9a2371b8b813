package clusterstore

import (
	"context"
	"errors"

	"github.com/flightd/flightd/flight"
)

// Expire turns flights whose retention is over into tombstones, the oldest first and at most limit of them, and drops
// their bodies and histories. It answers how many it turned; fewer than limit: the rest can wait.
//
// What expires is named by commands that the leader proposes; time alone expires nothing. It is late rather than
// early: see expiryHorizon.
func (s *Store) Expire(ctx context.Context, limit int) (int, error) {
	due, err := s.due(limit)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	proposals := make([]*proposal, 0, len(due))
	var failed error
	for _, c := range due {
		data, err := s.encode(c)
		if err != nil {
			return 0, err
		}
		p := &proposal{command: c, data: data, done: make(chan error, 1)}
		if failed = s.packer.enqueue(p); failed != nil {
			break
		}
		proposals = append(proposals, p)
	}
	expired := 0
	for _, p := range proposals {
		reply, err := s.packer.await(ctx, p)
		if err == nil && reply.Changed {
			expired++
		}
		failed = errors.Join(failed, err)
	}
	if f := s.cfg.Events.Expired; f != nil && expired > 0 {
		f(expired)
	}
	return expired, failed
}

// due names flights whose retention is over. Steps of a saga that is not expired yet are passed over: they live as
// long as it does.
func (s *Store) due(limit int) ([]*flight.Expire, error) {
	if s.leading.Load() == nil {
		return nil, s.notLeading()
	}
	var due []*flight.Expire
	s.machine.flush()
	from, end := singleRow(expiryRow), placeKey(nil, expiryRow, uint64(s.clock.expiryHorizon()+1), flight.ID{})
	for {
		ids, last, err := s.expiring(from, end)
		if err != nil || len(ids) == 0 {
			return due, err
		}
		for _, id := range ids {
			f, may, err := s.mayExpire(id)
			if err != nil {
				return nil, err
			}
			if may {
				due = append(due, &flight.Expire{Key: f.Key, Generation: f.Generation})
			}
			if len(due) == limit {
				return due, nil
			}
		}
		from = append(last, 0)
	}
}

// expiryChunk is how many rows of the index are read at once.
const expiryChunk = 1024

func (s *Store) expiring(from, end []byte) (ids []flight.ID, last []byte, err error) {
	err = s.state.scan(from, end, func(key, _ []byte) (bool, error) {
		_, id, err := splitPlace(key)
		if err != nil {
			return false, err
		}
		ids, last = append(ids, id), append(last[:0], key...)
		return len(ids) < expiryChunk, nil
	})
	return ids, last, err
}

func (s *Store) mayExpire(id flight.ID) (*flight.Flight, bool, error) {
	f, err := s.Flight(id)
	if err != nil || expiryKey(nil, f) == nil {
		return nil, false, err
	}
	if !f.Key.IsStep() {
		return f, true, nil
	}
	saga, err := s.Flight(f.Key.Saga().FlightID())
	return f, saga == nil || saga.State == flight.Expired, err
}
