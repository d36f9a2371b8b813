package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/internal/deadline"
)

// Open starts the ledger in cfg.Dir. A lone ledger is returned when it accepts proposals: this node is leader, has applied
// its whole log, and the deployment has its name and secret. An empty directory becomes a new ledger. With Config.Peers,
// Open waits for none of this: AwaitDeployment does.
//
// Open rejects a directory that another process has open (ErrLocked), that belongs to another node or cluster
// (ErrForeign), that a newer version wrote (ErrNewer) or one from before the first release (ErrOlder), and one that
// has lost durable data which the rest of it cannot replace (ErrDamaged). The message says which, and the remedy.
func Open(ctx context.Context, cfg Config) (_ *Store, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if p := cfg.Peers; p != nil && p.Transport == nil {
		return nil, errors.New("clusterstore: Config.Peers.Transport is nil")
	}
	s := &Store{cfg: cfg, reader: &reader{closing: make(chan struct{})}, raftNotify: make(chan bool, 16), clocksSet: make(chan struct{}, 1), snapshotDue: make(chan struct{}, 1), applyStopped: make(chan struct{}), commitTimeout: deadline.New(cfg.Limits.CommitTimeout)}
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
		return nil, fmt.Errorf("clusterstore: the ledger in %s has %d voters: Config.Peers is required", s.cfg.Dir, len(voters))
	}
	if err := s.waitForLeadership(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// openFiles opens log, state, snapshots and spool, and checks that they belong to this node.
func (s *Store) openFiles() (err error) {
	if s.id, err = identify(&s.cfg); err != nil {
		return err
	}
	s.cfg.NodeID, s.cfg.ClusterID = s.id.Node, s.id.Cluster
	s.blockCache = pebble.NewCache(s.cfg.Memory.cacheBytes())
	if s.logTail, err = pebblelog.InspectTail(s.cfg.FS, s.cfg.FS.PathJoin(s.cfg.Dir, logDir)); err != nil {
		return err
	}
	if s.log, err = pebblelog.Open(s.cfg.FS.PathJoin(s.cfg.Dir, logDir), pebblelog.Options(s.pebbleOptions())); err != nil {
		return storageError("open the raft log", err)
	}
	stateOpts := func() *pebble.Options { return stateOptions(s.pebbleOptions()) }
	if s.state, err = openState(&s.cfg, stateOpts); err != nil {
		return err
	}
	if s.snaps, err = openSnapshots(&s.cfg, s.id.Cluster, stateOpts); err != nil {
		return err
	}
	s.snaps.admit, s.snaps.onReceived = s.admitSnapshot, s.onSnapshotReceived
	if s.spool, err = openSpool(&s.cfg); err != nil {
		return err
	}
	s.disk = diskMonitor{cfg: &s.cfg}
	s.clock = &ledgerClock{source: s.cfg.Clock}
	s.duplicates = newDuplicateCounts(s.cfg.Clock.Wall)
	s.fsm = newFSM(&s.cfg, s.state, s.snaps)
	s.feed = &Feed{state: s.reader, log: s.log}
	found, err := s.state.load()
	if err != nil {
		return storageError("read the state", err)
	}
	s.fsm.load(found)
	return s.bindState()
}

// pebbleOptions are the options shared by log and state.
func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{FS: s.cfg.FS, Cache: s.blockCache, Logger: pebbleLog{log: s.cfg.Logger, kill: s.cfg.Limits.Kill}}
	o.EventListener = &pebble.EventListener{DataCorruption: s.onCorruption}
	o.MemTableSize, o.MemTableStopWritesThreshold = s.cfg.Memory.MemTable, maxMemTables
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	return o
}

// onCorruption logs a block with a wrong checksum. The reader of the block gets an error; the fsm kills the process
// on one. Background compactions retry for ever, so the message is throttled per file.
func (s *Store) onCorruption(info pebble.DataCorruptionInfo) {
	if !s.corruptions.shouldLog(info.Path, time.Now()) {
		return
	}
	s.cfg.Logger.Error("clusterstore: a block on disk is damaged", "file", info.Path, "error", info.Details.Error())
}

// bindState writes node and cluster into a new state; ErrForeign when the state belongs to another node or cluster.
func (s *Store) bindState() error {
	m := &s.fsm.meta
	if m.Cluster == "" {
		m.Format, m.Cluster, m.Node = minStateFormat, s.cfg.ClusterID, s.cfg.NodeID
		s.fsm.publish()
		return nil
	}
	if m.Cluster != s.cfg.ClusterID || m.Node != s.cfg.NodeID {
		return fmt.Errorf("%w: the state in %s belongs to node %s of cluster %s, the directory to node %s of cluster %s",
			ErrForeign, s.cfg.Dir, m.Node, m.Cluster, s.cfg.NodeID, s.cfg.ClusterID)
	}
	return nil
}

// inspectDisk checks that state, snapshot and log fit together, and calls Config.CheckPast. It runs before raft starts,
// because raft panics on a mismatch, and a start that is rejected must append nothing.
func (s *Store) inspectDisk(ctx context.Context) (restore bool, err error) {
	found, err := s.readDiskState()
	if err != nil {
		return false, err
	}
	if restore, err = planRecovery(found); err != nil {
		return false, err
	}
	base := max(found.Applied, found.Snapshot)
	if err := s.log.Scan(base+1, checkReadable); err != nil {
		return false, storageError(fmt.Sprintf("read the raft log after entry %d", base), err)
	}
	if err := s.checkPast(ctx, found); err != nil {
		return false, err
	}
	if err := s.removeReplacedLog(found); err != nil {
		return false, err
	}
	if found.Applied > found.Snapshot+maxStartReplay || !s.replayable(found) {
		if err := s.snapshotAtStart(); err != nil {
			return false, err
		}
	}
	return restore, nil
}

// checkReadable returns ErrNewer for an entry of a feature level that this build does not read. Found here, it ends the
// start; found by the fsm, it would end a process that has answered callers.
func checkReadable(entry *raft.Log) error {
	if entry.Type != raft.LogCommand {
		return nil
	}
	if _, _, err := decodeEntry(entry.Data); errors.Is(err, ErrNewer) {
		return fmt.Errorf("entry %d: %w", entry.Index, err)
	}
	return nil
}

func (s *Store) readDiskState() (diskState, error) {
	m := s.fsm.meta
	found := diskState{Started: s.id.Started, Applied: m.Applied, AppliedTerm: m.Term}
	list, err := s.snaps.List()
	if err != nil {
		return found, err
	}
	if len(list) > 0 {
		found.Snapshot, found.SnapshotTerm, found.OwnSnapshot = list[0].Index, list[0].Term, s.snaps.isLocal(list[0].ID)
	}
	found.SnapshotErr = s.snaps.readError()
	found.First, _ = s.log.FirstIndex() // it never returns an error
	found.Last, _ = s.log.LastIndex()   // it never returns an error
	found.HasTerm, err = s.log.HasTerm()
	if err = storageError("read the raft log", err); err != nil || m.Applied < found.First || m.Applied > found.Last || m.Applied == 0 {
		return found, err
	}
	var entry raft.Log
	err = s.log.GetLog(m.Applied, &entry)
	found.TermAtApplied = entry.Term
	if errors.Is(err, raft.ErrLogNotFound) {
		return found, nil // a gap in the log after a restore
	}
	return found, storageError("read the raft log", err)
}

// maxStartReplay limits the entries that raft reads again at a start although their effects are in the state.
const maxStartReplay = 64

// replayable reports whether the log holds every entry between the snapshot and the state. Raft reads them at a start
// and panics if one is missing, although the state needs none. They can be missing when a Scrub truncated the log
// after a snapshot that has been deleted since.
func (s *Store) replayable(found diskState) bool {
	for index := found.Snapshot + 1; index <= found.Applied; index++ {
		var entry raft.Log
		if err := s.log.GetLog(index, &entry); err != nil {
			return false
		}
	}
	return true
}

// snapshotAtStart takes a snapshot of the state before raft starts, so that raft replays no entries that are in the
// state, and the time of a restart does not depend on the length of the log.
//
// If the process dies before the sink is closed, the next start takes the snapshot again.
func (s *Store) snapshotAtStart() error {
	m := s.fsm.meta
	sink, err := s.snaps.begin(snapshotMeta{Index: m.Applied, Term: m.Term, Configuration: m.Config, ConfigurationIndex: m.ConfigIndex})
	if err != nil {
		return err
	}
	point, err := s.fsm.Snapshot()
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	defer point.Release()
	if err := point.Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// startRaft bootstraps a new log, starts raft and the store's background goroutines, and proposes the spooled reports
// again. Close waits for these goroutines.
func (s *Store) startRaft(restore bool) error {
	transport := s.raftTransport()
	guarded := &watchedLog{LogStore: s.log, timeout: s.cfg.Limits.StallTimeout, onStall: s.onStall, onGrowth: s.onLogGrowth, onAppended: s.cfg.Events.Appended, markStarted: s.markStarted}
	if s.cfg.wrapLog != nil {
		guarded.LogStore = s.cfg.wrapLog(s.log)
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
	s.spool.resume(s)
	return nil
}

// bootstrapLog writes the first entry of a new ledger: its voters. Without Peers.Founding a new node of a cluster gets it
// from the leader that adds the node, and the log stays empty until then.
//
// If the process dies between Bootstrap and markStarted, the log has its first entry, and the next start marks
// IDENTITY.
func (s *Store) bootstrapLog(address raft.ServerAddress) error {
	list, err := s.snaps.List()
	if err != nil {
		return err
	}
	if last, _ := s.log.LastIndex(); last > 0 || s.fsm.meta.Applied > 0 || len(list) > 0 {
		return s.markStarted()
	}
	self := Voter{ID: s.cfg.NodeID, Address: string(address)}
	founding := []Voter{self}
	if s.cfg.Peers != nil {
		founding = s.cfg.Peers.Founding
	}
	if founding == nil {
		return nil
	}
	first, err := foundingConfiguration(founding, self)
	if err != nil {
		return err
	}
	if err := s.log.Bootstrap(first); err != nil {
		return err
	}
	return s.markStarted()
}

// markStarted notes in IDENTITY that this directory has an entry of the log, before another node or a caller sees one. Once raft runs,
// only its main goroutine calls it, after an append and after a snapshot that another node sent.
func (s *Store) markStarted() error { return s.id.markStarted(&s.cfg) }

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
		next := s.leadershipChanged.next()
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
