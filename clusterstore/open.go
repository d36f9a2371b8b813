package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/internal/deadline"
)

// Open starts the ledger in cfg.Dir. A lone ledger is returned when it accepts proposals: this node is leader, has applied
// its whole log, and the deployment has its name and secret. An empty directory becomes a new ledger. With Config.Peers,
// Open waits for none of this: AwaitDeployment does.
//
// Open rejects a directory that another process has open (ErrLocked), that belongs to another node or cluster
// (ErrForeign), that a newer version wrote (ErrNewer), and one that has lost
// durable data which the rest of it cannot replace (ErrDamaged). The message says which, and the remedy.
func Open(ctx context.Context, cfg Config) (_ *Store, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if p := cfg.Peers; p != nil && p.Transport == nil {
		return nil, errors.New("clusterstore: Config.Peers.Transport is nil")
	}
	s := &Store{storage: storage{cfg: cfg, reader: &reader{closing: make(chan struct{})}}, raftNotify: make(chan bool, 16), clocksSet: make(chan struct{}, 1), snapshotDue: make(chan struct{}, 1), applyStopped: make(chan struct{}), commitTimeout: deadline.New(context.Background(), cfg.Limits.CommitTimeout)}
	s.view = s.reader
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if s.lock, err = lockDir(&s.cfg); err != nil {
		return nil, err
	}
	if err := s.openFiles(); err != nil {
		return nil, err
	}
	s.clock, s.duplicateCounts = &ledgerClock{source: s.cfg.Clock}, newDuplicateCounts(s.cfg.Clock.Wall)
	s.feed = &Feed{state: s.reader, log: s.log}
	restore, err := s.inspectDisk(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.startRaft(restore); err != nil {
		return nil, err
	}
	if s.cfg.Peers != nil {
		return s, nil // another voter may be the leader
	}
	voters, _, err := s.Voters()
	if err != nil {
		return nil, err
	}
	if len(voters) > 1 {
		return nil, fmt.Errorf("%w: the ledger in %s has %d voters: Config.Peers is required", ErrForeign, s.cfg.Dir, len(voters))
	}
	if err := s.waitForLeadership(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// startRaft bootstraps a new log, starts raft and the store's background goroutines, and proposes the spooled reports
// again. Close waits for these goroutines.
func (s *Store) startRaft(restore bool) error {
	transport := s.raftTransport()
	guarded := &watchedLog{LogStore: s.log, snaps: s.snaps, timeout: s.cfg.Limits.StallTimeout, onStall: s.onStall, onGrowth: s.onLogGrowth, onAppended: s.cfg.Events.Appended, markStarted: s.markStarted}
	if s.cfg.Log.wrap != nil {
		guarded.LogStore = s.cfg.Log.wrap(s.log)
	}
	if err := s.bootstrapLog(transport.LocalAddr()); err != nil {
		return err
	}
	conf := s.raftConfig(restore)
	r, err := raft.NewRaft(conf, s.fsm, guarded, s.log, s.snaps, transport)
	if err != nil {
		if why := s.snaps.readError(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return storageError("start raft", err)
	}
	s.raft = r
	s.batcher = &batcher{raft: r, now: s.clock.stamp, pending: s.fsm.pending}
	s.workers.Add(4)
	go s.runFlush()
	go s.runDuplicateFlush()
	go s.watchLeadership()
	go s.runSnapshots()
	s.workers.Go((&verifier{storage: &s.storage}).run)
	s.spool.resume(s)
	return nil
}

// soloTimeout is the election timeout of a lone voter, which has no other candidate to wait for.
const soloTimeout = 25 * time.Millisecond

func (s *Store) raftConfig(restore bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(s.cfg.NodeID)
	c.Logger = RaftLogger(s.cfg.Logger)
	c.NotifyCh = s.raftNotify
	c.NoSnapshotRestoreOnStart = !restore
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.MaxAppendEntries = 64
	c.SnapshotThreshold = math.MaxUint64 >> 1 // disabled: runSnapshots goes by the size of the log
	c.SnapshotInterval = time.Hour
	if s.cfg.Peers == nil {
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = soloTimeout, soloTimeout, soloTimeout
	}
	return c
}

// raftTransport returns the transport to the other voters. A lone voter has one without peers, and its id as address.
func (s *Store) raftTransport() raft.Transport {
	if p := s.cfg.Peers; p != nil {
		return p.Transport
	}
	_, transport := raft.NewInmemTransport(raft.ServerAddress(s.cfg.NodeID))
	return transport
}

// waitForLeadership waits until this node is leader and accepts proposals.
func (s *Store) waitForLeadership(ctx context.Context) error {
	for s.leading.Load() == nil {
		next := s.leadershipChanged.Next()
		if s.leading.Load() != nil {
			break
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("clusterstore: open: wait for leadership: %w", context.Cause(ctx))
		}
	}
	return nil
}
