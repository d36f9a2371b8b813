package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// storage is what a node has on disk: log, state, snapshots and spool. It is opened and inspected before raft starts, and
// closed after raft and all readers.
type storage struct {
	*reader
	cfg         Config
	lock        io.Closer
	id          identity
	blockCache  *pebble.Cache
	log         *pebblelog.Store
	logTail     pebblelog.Tail // of the log as it was found
	state       *state
	snaps       *snapshots
	spool       *spool
	disk        diskMonitor
	corruptions corruptionLog
	damaged     atomic.Bool // a block with a wrong checksum, or that cannot be read, was found since the start

	clockStepStored atomic.Bool // the file CLOCK_STEP exists
}

// CheckDiskSpace returns ErrUnavailable while less than Limits.MinFree of disk is free, so that new work is rejected.
func (st *storage) CheckDiskSpace() error { return st.disk.check() }

// IsDamaged reports whether a block on the disk was found damaged since the start. A leader with a damaged snapshot could send it to no node.
func (st *storage) IsDamaged() bool { return st.damaged.Load() }

// openFiles opens log, state, snapshots and spool, and checks that they belong to this node.
func (st *storage) openFiles() (err error) {
	if st.id, err = identify(&st.cfg); err != nil {
		return err
	}
	st.cfg.NodeID, st.cfg.ClusterID = st.id.Node, st.id.Cluster
	st.blockCache = pebble.NewCache(st.cfg.Memory.cacheBytes())
	if st.logTail, err = pebblelog.InspectTail(st.cfg.FS, st.cfg.FS.PathJoin(st.cfg.Dir, logDir)); err != nil {
		return err
	}
	if st.log, err = pebblelog.Open(st.cfg.FS.PathJoin(st.cfg.Dir, logDir), pebblelog.Options(st.pebbleOptions())); err != nil {
		return storageError("open the raft log", err)
	}
	stateOpts := func() *pebble.Options { return stateOptions(st.pebbleOptions()) }
	if st.state, err = openState(&st.cfg, stateOpts); err != nil {
		return err
	}
	if st.snaps, err = openSnapshots(&st.cfg, st.id.Cluster, stateOpts); err != nil {
		return err
	}
	st.snaps.admit, st.snaps.onReceived = st.admitSnapshot, st.onSnapshotReceived
	if st.spool, err = openSpool(&st.cfg); err != nil {
		return err
	}
	st.disk = diskMonitor{cfg: &st.cfg}
	st.fsm = newFSM(&st.cfg, st.state, st.snaps)
	found, err := st.state.load()
	if err != nil {
		return storageError("read the state", err)
	}
	st.fsm.load(found)
	return st.bindState()
}

// pebbleOptions are the options shared by log and state.
func (st *storage) pebbleOptions() *pebble.Options {
	o := &pebble.Options{FS: st.cfg.FS, Cache: st.blockCache, Logger: pebbleLog{log: st.cfg.Logger, kill: st.cfg.Limits.Kill}}
	o.EventListener = &pebble.EventListener{DataCorruption: st.onCorruption}
	o.MemTableSize, o.MemTableStopWritesThreshold = st.cfg.Memory.MemTable, maxMemTables
	o.CompactionConcurrencyRange = func() (int, int) { return 1, 2 }
	return o
}

// onCorruption logs a damaged block. A reader of the block gets an error; the fsm kills the process on one, the
// verifier goes on. Background compactions retry for ever, so the message is throttled per file.
func (st *storage) onCorruption(info pebble.DataCorruptionInfo) {
	st.damaged.Store(true)
	if !st.corruptions.shouldLog(info.Path, time.Now()) {
		return
	}
	st.cfg.Logger.Error("clusterstore: a block on disk is damaged", "file", info.Path, "error", info.Details.Error())
}

// bindState writes node and cluster into a new state; ErrForeign when the state belongs to another node or cluster.
func (st *storage) bindState() error {
	m := &st.fsm.meta
	if m.Cluster == "" {
		m.Level, m.Cluster, m.Node = flight.LevelBase, st.cfg.ClusterID, st.cfg.NodeID
		st.fsm.publish()
		return nil
	}
	if m.Cluster != st.cfg.ClusterID || m.Node != st.cfg.NodeID {
		return fmt.Errorf("%w: the state in %s belongs to node %s of cluster %st, the directory to node %s of cluster %s",
			ErrForeign, st.cfg.Dir, m.Node, m.Cluster, st.cfg.NodeID, st.cfg.ClusterID)
	}
	return nil
}

// inspectDisk checks that state, snapshot and log fit together, and calls Config.CheckPast. It runs before raft starts,
// because raft panics on a mismatch, and a start that is rejected must append nothing.
func (st *storage) inspectDisk(ctx context.Context) (restore bool, err error) {
	found, err := st.readDiskState()
	if err != nil {
		return false, err
	}
	if restore, err = planRecovery(found); err != nil {
		return false, err
	}
	base := max(found.Applied, found.Snapshot)
	if err := st.log.Scan(base+1, st.checkReadable); err != nil {
		return false, storageError(fmt.Sprintf("read the raft log after entry %d", base), err)
	}
	if err := st.checkPast(ctx, found); err != nil {
		return false, err
	}
	if err := st.removeReplacedLog(found); err != nil {
		return false, err
	}
	if found.Applied > found.Snapshot+maxStartReplay || !st.replayable(found) {
		if err := st.snapshotAtStart(); err != nil {
			return false, err
		}
	}
	return restore, nil
}

// checkReadable returns ErrNewer for an entry of a feature level that this build does not read. Found here, it ends the
// start; found by the fsm, it would end a process that has answered callers.
func (st *storage) checkReadable(entry *raft.Log) error {
	if entry.Type != raft.LogCommand {
		return nil
	}
	if _, _, err := decodeEntry(entry.Data, st.cfg.Limits.levels.Max); errors.Is(err, ErrNewer) {
		return fmt.Errorf("entry %d: %w", entry.Index, err)
	}
	return nil
}

func (st *storage) readDiskState() (diskState, error) {
	m := st.fsm.meta
	found := diskState{Started: st.id.Started, Applied: m.Applied, AppliedTerm: m.Term}
	list, err := st.snaps.List()
	if err != nil {
		return found, err
	}
	if len(list) > 0 {
		found.Snapshot, found.SnapshotTerm, found.OwnSnapshot = list[0].Index, list[0].Term, st.snaps.isLocal(list[0].ID)
	}
	found.SnapshotErr = st.snaps.readError()
	found.First, _ = st.log.FirstIndex() // it never returns an error
	found.Last, _ = st.log.LastIndex()   // it never returns an error
	found.HasTerm, err = st.log.HasTerm()
	if err = storageError("read the raft log", err); err != nil || m.Applied < found.First || m.Applied > found.Last || m.Applied == 0 {
		return found, err
	}
	var entry raft.Log
	err = st.log.GetLog(m.Applied, &entry)
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
func (st *storage) replayable(found diskState) bool {
	for index := found.Snapshot + 1; index <= found.Applied; index++ {
		var entry raft.Log
		if err := st.log.GetLog(index, &entry); err != nil {
			return false
		}
	}
	return true
}

// snapshotAtStart takes a snapshot of the state before raft starts, so that raft replays no entries that are in the
// state, and the time of a restart does not depend on the length of the log.
//
// If the process dies before the sink is closed, the next start takes the snapshot again.
func (st *storage) snapshotAtStart() error {
	m := st.fsm.meta
	sink, err := st.snaps.begin(snapshotMeta{Index: m.Applied, Term: m.Term, Configuration: m.Config, ConfigurationIndex: m.ConfigIndex})
	if err != nil {
		return err
	}
	point, err := st.fsm.Snapshot()
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	defer point.Release()
	if err := point.Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// bootstrapLog writes the first entry of a new ledger: its voters. Without Peers.Founding a new node of a cluster gets it
// from the leader that adds the node, and the log stays empty until then.
//
// If the process dies between Bootstrap and markStarted, the log has its first entry, and the next start marks
// IDENTITY.
func (st *storage) bootstrapLog(address raft.ServerAddress) error {
	list, err := st.snaps.List()
	if err != nil {
		return err
	}
	if last, _ := st.log.LastIndex(); last > 0 || st.fsm.meta.Applied > 0 || len(list) > 0 {
		return st.markStarted()
	}
	self := Voter{ID: st.cfg.NodeID, Address: string(address)}
	founding := []Voter{self}
	if st.cfg.Peers != nil {
		founding = st.cfg.Peers.Founding
	}
	if founding == nil {
		return nil
	}
	first, err := foundingConfiguration(founding, self)
	if err != nil {
		return err
	}
	if err := st.log.Bootstrap(first); err != nil {
		return err
	}
	return st.markStarted()
}

// markStarted notes in IDENTITY that this directory has an entry of the log, before another node or a caller sees one. Once raft runs,
// only its main goroutine calls it, after an append and after a snapshot that another node sent.
func (st *storage) markStarted() error { return st.id.markStarted(&st.cfg) }

// closeFiles closes what openFiles has opened, also after an error.
func (st *storage) closeFiles() error {
	var errs []error
	if st.state != nil {
		errs = append(errs, st.state.close())
	}
	if st.log != nil {
		errs = append(errs, st.log.Close())
	}
	if st.blockCache != nil {
		st.blockCache.Unref()
	}
	if st.lock != nil {
		errs = append(errs, st.lock.Close())
	}
	return errors.Join(errs...)
}
