package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/deadline"
	"github.com/flightd/flightd/internal/gate"
)

// Store is one node of the ledger. Its methods are safe for concurrent use.
type Store struct {
	storage
	*duplicateCounts
	raft    *raft.Raft
	batcher *batcher
	clock   *ledgerClock
	feed    *Feed
	scrubMu sync.Mutex // held by Scrub

	leading           atomic.Pointer[leadership] // nil while this node is not leader, or not ready
	leadershipChanged signal                     // broadcast when leading changes
	raftNotify        chan bool                  // leadership notifications from raft
	clocksSet         chan struct{}              // SetPeerClocks was called
	awaitsClocks      bool                       // a new ledger waits for the clocks of a majority; used by watchLeadership only
	snapshotDue       chan struct{}              // the log has grown enough for a snapshot
	stepMu            sync.Mutex                 // held by stepClock, so that the clock steps once
	clockStepStored   atomic.Bool                // the file CLOCK_STEP exists
	snapshotMu        sync.Mutex                 // held while a snapshot is taken, and raft's TrailingLogs is set for it
	snapshotBytes     atomic.Uint64              // pebblelog.Store.Appended at the last snapshot
	applyStopped      chan struct{}              // closed when raft applies no more entries
	closeOnce         sync.Once
	closeErr          error
	workers           sync.WaitGroup
	commitTimeout     *deadline.Shared // Limits.CommitTimeout, shared by all reports
	background        gate.Gate        // goroutines started by callers; Close waits for them
}

// leadership is a term in which this node is leader and has applied an entry of its own.
type leadership struct{ term uint64 }

// Now returns the ledger's time: on the leader the stamp of the next entry, else the time of the last entry. It is
// the reference for NotAfter.
func (s *Store) Now() flight.Time {
	now := s.Header().Now
	if s.leading.Load() != nil {
		now = max(now, s.clock.read())
	}
	return now
}

// Applied returns the index of the last entry applied here, and whether this node is leader.
func (s *Store) Applied() (index uint64, leading bool) {
	return s.fsm.published.Load().meta.Applied, s.leading.Load() != nil
}

// Propose commits a command and returns the reply of the rules. Commands proposed at the same time share one write.
// The command must not be changed afterwards.
//
// A reply means that the command is durable. While the result is unknown, Propose proposes the command again;
// applying it twice returns the reply of applying it once. If ctx ends before the result is known, the error is an
// effect.ErrAmbiguous. All other errors mean that this call did not and will not apply the command: ErrNotLeader,
// ErrUnavailable, ErrTooLarge, ErrClosed.
//
// If the process dies during Propose, the command may be in the log; no caller was answered.
func (s *Store) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	data, err := s.encode(c)
	if err != nil {
		return flight.Reply{}, err
	}
	return s.propose(ctx, c, data, nil)
}

// encode encodes a command. It rejects a command that is invalid, too large, or new work on a nearly full disk.
func (s *Store) encode(c flight.Command) ([]byte, error) {
	data, err := flight.Encode(c)
	if err != nil {
		return nil, err
	}
	if len(data) > maxCommand {
		return nil, ErrTooLarge
	}
	if level := s.fsm.published.Load().header.FeatureLevel(); flight.RequiredLevel(c) > level {
		return nil, fmt.Errorf("%w: %T needs level %d, the ledger has level %d", ErrFeatureLevel, c, flight.RequiredLevel(c), level)
	}
	return data, s.disk.admit(c)
}

// propose retries until the result is known. unknown is the error that made an earlier attempt ambiguous; nil: none.
func (s *Store) propose(ctx context.Context, c flight.Command, data []byte, unknown error) (flight.Reply, error) {
	for {
		leads := s.leadershipChanged.next()
		reply, err := s.proposeOnce(ctx, c, data)
		switch {
		case err == nil:
			return reply, nil
		case errors.Is(err, effect.ErrAmbiguous):
			unknown = err
		case unknown == nil:
			return flight.Reply{}, err
		}
		if !s.waitRetry(ctx, leads) {
			return flight.Reply{}, unknown
		}
	}
}

func (s *Store) proposeOnce(ctx context.Context, c flight.Command, data []byte) (flight.Reply, error) {
	if s.leading.Load() == nil {
		return flight.Reply{}, s.notLeaderError()
	}
	return s.batcher.propose(ctx, c, data)
}

func (s *Store) notLeaderError() error {
	select {
	case <-s.closing:
		return ErrClosed
	default:
		return ErrNotLeader
	}
}

// retryPause is the delay between two attempts, unless the leadership changes earlier.
const retryPause = 20 * time.Millisecond

// waitRetry waits before the next attempt. It returns false when ctx ended or the store closes.
func (s *Store) waitRetry(ctx context.Context, leads <-chan struct{}) bool {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.closing:
		return false
	case <-leads:
	case <-timer.C:
	}
	return true
}

// Barrier returns when every entry committed before the call is applied here, so that local reads that follow are
// linearizable. Errors: ErrNotLeader, ErrClosed, or that of ctx.
func (s *Store) Barrier(ctx context.Context) error {
	lead := s.leading.Load()
	if lead == nil || s.raft.CurrentTerm() != lead.term {
		return s.notLeaderError()
	}
	index := s.raft.CommitIndex() // includes an entry of this term, hence all committed entries of earlier terms
	if err := s.verifyLeader(ctx); err != nil {
		return err
	}
	if s.raft.CurrentTerm() != lead.term {
		return ErrNotLeader
	}
	return s.waitApplied(ctx, index)
}

// verifyLeader asks a majority whether this node is still leader.
func (s *Store) verifyLeader(ctx context.Context) error {
	return s.await(ctx, func() error {
		if s.raft.VerifyLeader().Error() != nil {
			return ErrNotLeader
		}
		return nil
	})
}

// Close rejects new proposals, waits for those in flight until ctx ends, stops raft and closes the files. Callers
// whose proposals are still in flight get effect.ErrAmbiguous. Uncommitted reports stay in the spool.
func (s *Store) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { s.closeErr = s.shutdown(ctx) })
	return s.closeErr
}

func (s *Store) shutdown(ctx context.Context) error {
	var errs []error
	if s.batcher != nil {
		for ctx.Err() == nil && s.flushDuplicates(ctx) > 0 {
		}
		errs = append(errs, s.batcher.close(ctx))
	}
	close(s.closing)
	s.background.Close() // waits for their goroutines
	s.commitTimeout.Close()
	s.leading.Store(nil)
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error()) // closes the transport
	} else if p := s.cfg.Peers; p != nil {
		if transport, ok := p.Transport.(io.Closer); ok {
			errs = append(errs, transport.Close())
		}
	}
	close(s.applyStopped)
	if s.fsm != nil {
		s.fsm.pending.failAll(ambiguous(errors.New("the store was closed"))) // raft drops entries that are committed and not applied yet
	}
	s.workers.Wait()
	if s.fsm != nil {
		s.fsm.flush()
	}
	return errors.Join(append(errs, s.closeFiles())...)
}

// signal wakes all goroutines that wait for a change.
type signal struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
