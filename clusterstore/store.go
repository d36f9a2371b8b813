package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/deadline"
	"github.com/flightd/flightd/internal/gate"
)

// Store is one node of the ledger. Its methods are safe for concurrent use.
type Store struct {
	storage
	*duplicateCounts
	consensus
	batcher *batcher
	clock   *ledgerClock
	feed    *Feed
	scrubMu sync.Mutex // held by Scrub

	leadershipChanged gate.Signal   // broadcast when leading changes
	raftNotify        chan bool     // leadership notifications from raft
	clocksSet         chan struct{} // SetPeerClocks was called
	awaitsClocks      bool          // a new ledger waits for the clocks of a majority; used by watchLeadership only
	snapshotDue       chan struct{} // the log has grown enough for a snapshot
	stepMu            sync.Mutex    // held by stepClock, so that the clock steps once
	snapshotMu        sync.Mutex    // held while a snapshot is taken, and raft's TrailingLogs is set for it
	snapshotBytes     atomic.Uint64 // pebblelog.Store.Appended at the last snapshot
	applyStopped      chan struct{} // closed when raft applies no more entries
	closeOnce         sync.Once
	closeErr          error
	workers           sync.WaitGroup
	commitTimeout     *deadline.Shared // Limits.CommitTimeout, shared by all reports
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

// Overdue returns at most limit flights that need a WakeUp by now, as of the last entry applied here.
func (s *Store) Overdue(limit int) (overdue []flight.ID) {
	header := s.Header()
	header.Now = s.Now()
	s.fsm.tablesMu.RLock()
	defer s.fsm.tablesMu.RUnlock()
	for id := range s.fsm.due.Overdue(&header) {
		if len(overdue) == limit {
			break
		}
		overdue = append(overdue, id)
	}
	return overdue
}

// Feed returns the feed of this node.
func (s *Store) Feed() *Feed { return s.feed }

// Jobs returns the submitted jobs.
func (s *Store) Jobs() Jobs { return Jobs{s} }

// Stats returns the figures. It does not wait and asks no other node.
func (s *Store) Stats() Stats {
	now := s.fsm.published.Load()
	stats := Stats{
		Leading: s.leading.Load() != nil, Term: s.raft.CurrentTerm(), Commit: s.raft.CommitIndex(), Applied: now.meta.Applied,
		LogBytes: s.log.DiskBytes(), StateBytes: s.state.diskBytes(), CompactionDebt: s.state.compactionDebt(), Spooled: s.Spooled(), Damaged: s.IsDamaged(), Flights: now.meta.Counts, Reconciling: now.header.Reconciling,
	}
	stats.Quarantined, stats.QuarantineFiles = s.spool.quarantined()
	stats.First, _ = s.log.FirstIndex() // it never returns an error
	stats.Last, _ = s.log.LastIndex()   // it never returns an error
	if usage, err := s.cfg.FS.GetDiskUsage(s.cfg.Dir); err == nil {
		stats.FreeBytes, stats.FreeKnown = usage.AvailBytes, true
	}
	return stats
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
	if level := s.fsm.published.Load().header.FeatureLevel(); s.cfg.Limits.levels.Required(c) > level {
		return nil, fmt.Errorf("%w: %T needs level %d, the ledger has level %d", ErrFeatureLevel, c, s.cfg.Limits.levels.Required(c), level)
	}
	return data, s.disk.admit(c)
}

// propose retries until the result is known. unknown is the error that made an earlier attempt ambiguous, or nil.
func (s *Store) propose(ctx context.Context, c flight.Command, data []byte, unknown error) (flight.Reply, error) {
	for {
		leads := s.leadershipChanged.Next()
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

// ProposeAll proposes many commands and returns the replies in their order. The commands share log entries, so a
// thousand cost little more than one. They are not a transaction: each is applied on its own, in any order among
// other commands, and one whose result is unknown is proposed again, as Propose does.
//
// With an error, some replies may be missing: a reply of DecisionNone means that the result of its command is
// unknown. Proposing the commands again is harmless. Errors are those of Propose.
func (s *Store) ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	replies := make([]flight.Reply, len(commands))
	proposals := make([]*proposal, 0, len(commands))
	var failed error
	for _, c := range commands {
		data, err := s.encode(c)
		p := newProposal(c, data)
		if err == nil {
			err = s.enqueue(p)
		}
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

// ProposeTogether proposes commands as one entry of the log: all are applied, in their order and with nothing between them, or none
// is. An entry of unknown result is not proposed again. Errors are those of Propose; without one, all commands have a reply.
//
// If the process dies, or this node loses its leadership, the entry may be in the log.
func (s *Store) ProposeTogether(ctx context.Context, commands []flight.Command) ([]flight.Reply, error) {
	proposals, size := make([]*proposal, len(commands)), entryFixed
	for i, c := range commands {
		data, err := s.encode(c)
		if err != nil {
			return nil, err
		}
		proposals[i] = newProposal(c, data)
		proposals[i].together = len(commands) - 1 - i
		size += commandPrefix + len(data)
	}
	if size > maxEntry {
		return nil, ErrTooLarge
	}
	if err := s.enqueue(proposals...); err != nil {
		return nil, err
	}
	if _, err := s.batcher.await(ctx, proposals[0]); err != nil {
		return nil, err
	}
	replies := make([]flight.Reply, len(commands))
	for i, p := range proposals {
		if i > 0 {
			<-p.done // their batch is complete
		}
		replies[i] = p.reply
	}
	return replies, nil
}

// enqueue queues proposals without waiting for their results.
func (s *Store) enqueue(all ...*proposal) error {
	if s.leading.Load() == nil {
		return s.notLeaderError()
	}
	return s.batcher.enqueue(all...)
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
