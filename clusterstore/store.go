package clusterstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/internal/horizon"
)

// Store is the ledger as one node has it. Its methods may be called concurrently.
type Store struct {
	cfg     Config
	lock    io.Closer
	id      identity
	blocks  *pebble.Cache
	log     *pebblelog.Store
	state   *state
	snaps   *snapshots
	machine *machine
	raft    *raft.Raft
	packer  *packer
	clock   *ledgerClock
	spool   *spool
	disk    diskGuard
	feed    feed
	tallies *tallies
	scrubs  sync.Mutex // one at a time
	damages damages

	leading  atomic.Pointer[leadership] // nil while this node does not lead, or is not ready to
	leads    signal                     // leadership changed
	notify   chan bool                  // from raft
	snapshot chan struct{}              // the log has grown enough for one
	jumped   atomic.Bool                // the file that says so is there
	snapped  atomic.Uint64              // bytes appended when the last one was taken
	closing  chan struct{}
	quiet    chan struct{} // closed when nothing is applied any more
	closed   sync.Once
	closeErr error
	workers  sync.WaitGroup
	patience *horizon.Horizon // of a report with its commit
	guests   gate.Gate        // goroutines that callers started and that Close waits for
}

// leadership is a term in which this node leads and has applied an entry of its own.
type leadership struct{ term uint64 }

// Header is the ledger's header as of the last entry that was applied here.
func (s *Store) Header() flight.Header { return s.machine.shown.Load().header }

// Now is the ledger's time as this node can tell it: what the next entry will be stamped with if it leads, else the
// time of the last entry. For NotAfter.
func (s *Store) Now() flight.Time {
	now := s.Header().Now
	if s.leading.Load() != nil {
		now = max(now, s.clock.read())
	}
	return now
}

// Applied is the index of the last entry that was applied here, and whether this node leads.
func (s *Store) Applied() (index uint64, leading bool) {
	return s.machine.shown.Load().meta.Applied, s.leading.Load() != nil
}

// Room says why new work is refused though a leader is there: ErrUnavailable while less than Guard.MinFree of the disk is
// free; nil: it is not.
func (s *Store) Room() error { return s.disk.room() }

// Propose brings a command into the ledger and answers what the rules say of it. It may be called from many
// goroutines: commands that come while earlier ones are being written share one write. The command must not be
// changed afterwards.
//
// An answer means that the command is durable. While it is open what became of it, it is proposed again: applying it
// twice answers as applying it once. When ctx ends before that is known the error is an *AmbiguousError; all other
// errors mean that it was not and will not be applied by this call: ErrNotLeader, ErrUnavailable, ErrTooLarge,
// ErrClosed.
func (s *Store) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	data, err := s.encode(c)
	if err != nil {
		return flight.Reply{}, err
	}
	return s.propose(ctx, c, data, nil)
}

// encode writes a command and refuses it where it cannot or should not be proposed at all.
func (s *Store) encode(c flight.Command) ([]byte, error) {
	data, err := flight.Encode(c)
	if err != nil {
		return nil, err
	}
	if len(data) > maxCommand {
		return nil, ErrTooLarge
	}
	return data, s.disk.admit(c)
}

// propose asks until it knows. unknown says what made an earlier try ambiguous, if there was one.
func (s *Store) propose(ctx context.Context, c flight.Command, data []byte, unknown error) (flight.Reply, error) {
	for {
		leads := s.leads.next()
		reply, err := s.try(ctx, c, data)
		switch {
		case err == nil:
			return reply, nil
		case ambiguous(err):
			unknown = err
		case unknown == nil:
			return flight.Reply{}, err
		}
		if !s.pause(ctx, leads) {
			return flight.Reply{}, unknown
		}
	}
}

func (s *Store) try(ctx context.Context, c flight.Command, data []byte) (flight.Reply, error) {
	if s.leading.Load() == nil {
		return flight.Reply{}, s.notLeading()
	}
	return s.packer.do(ctx, c, data)
}

func (s *Store) notLeading() error {
	select {
	case <-s.closing:
		return ErrClosed
	default:
		return ErrNotLeader
	}
}

// retryPause is how long it is waited between two tries where nothing tells that the next one may go better.
const retryPause = 20 * time.Millisecond

// pause waits before the next try. It answers false when there is to be none.
func (s *Store) pause(ctx context.Context, leads <-chan struct{}) bool {
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

// Barrier returns when everything that was committed before it was called has been applied here, so that local reads
// that follow are linearizable. Errors: ErrNotLeader, ErrClosed, or that of ctx.
func (s *Store) Barrier(ctx context.Context) error {
	lead := s.leading.Load()
	if lead == nil || s.raft.CurrentTerm() != lead.term {
		return s.notLeading()
	}
	index := s.raft.CommitIndex() // holds an entry of ours in this term, hence all that was committed in earlier ones
	if err := s.verify(ctx); err != nil {
		return err
	}
	if s.raft.CurrentTerm() != lead.term {
		return ErrNotLeader
	}
	return s.reach(ctx, index)
}

// verify asks a majority whether this node still leads.
func (s *Store) verify(ctx context.Context) error {
	if !s.guests.Enter() {
		return ErrClosed
	}
	answer := make(chan error, 1)
	go func() { // raft answers as long as it runs, and Close lets it run until everybody has left
		defer s.guests.Leave()
		answer <- s.raft.VerifyLeader().Error()
	}()
	select {
	case err := <-answer:
		if err != nil {
			return ErrNotLeader
		}
		return nil
	case <-s.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reach waits until an index was applied here.
func (s *Store) reach(ctx context.Context, index uint64) error {
	for {
		progress := s.machine.marks.wait(index)
		if progress == nil {
			return nil
		}
		select {
		case <-progress:
		case <-s.closing:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close refuses new proposals, lets those in flight end, stops raft and closes the files. When ctx ends before
// proposals in flight did, they are given up; their callers are told that the outcome is not known. Reports that are
// not committed by then stay in the spool.
func (s *Store) Close(ctx context.Context) error {
	s.closed.Do(func() { s.closeErr = s.shut(ctx) })
	return s.closeErr
}

func (s *Store) shut(ctx context.Context) error {
	var errs []error
	if s.packer != nil {
		s.drainTallies(ctx)
		errs = append(errs, s.packer.close(ctx))
	}
	close(s.closing)
	s.guests.Close()
	s.patience.Close()
	s.leading.Store(nil)
	if s.raft != nil {
		errs = append(errs, s.raft.Shutdown().Error())
	}
	close(s.quiet)
	if s.machine != nil {
		s.machine.pending.abandon(&AmbiguousError{Cause: errors.New("the store was closed meanwhile")}) // raft forgets what was committed and not applied yet
	}
	s.workers.Wait()
	if s.machine != nil {
		s.machine.flush()
	}
	if s.state != nil {
		errs = append(errs, s.state.close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.blocks != nil {
		s.blocks.Unref()
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// signal wakes everybody who waits for something to change.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed by the next broadcast.
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
