package clusterstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// A snapshot that the leader sends replaces the log of this node: raft restores the state from it and then removes all
// entries, because pebblelog.Store.IsMonotonic says so. Raft does not compare the snapshot with the log before it does so,
// and keeps the last entry of the removed log in memory. So two cases need more than raft does: a late snapshot, and a
// log that goes on after the snapshot.

// admitSnapshot returns an error for a late snapshot: an earlier request that the leader has given up, or repeated. Raft
// would roll the state back, and remove entries that this node has acknowledged.
func (st *storage) admitSnapshot(index uint64) error {
	last, _ := st.log.LastIndex() // it never returns an error
	if applied := st.LastApplied().Index; index <= applied && index < last {
		return fmt.Errorf("clusterstore: the snapshot up to entry %d is late: entry %d is applied, and the log goes on to entry %d", index, applied, last)
	}
	return nil
}

// onSnapshotReceived marks the directory as started. If the log goes on after the snapshot with entries that were never
// committed, it ends the process: raft would compare the leader's next entries with the removed ones and ask for the
// snapshot again and again. The next start removes them (removeReplacedLog).
func (st *storage) onSnapshotReceived(index uint64) error {
	if err := st.markStarted(); err != nil {
		return err
	}
	if last, _ := st.log.LastIndex(); last > index {
		st.cfg.Limits.Kill(fmt.Errorf("clusterstore: the leader has replaced the log of this node, which had entries up to %d that were never committed, by a snapshot up to entry %d: start the node again", last, index))
	}
	return nil
}

// removeReplacedLog removes the log that a received snapshot has replaced, if the process died before raft removed it: one
// that ends before the snapshot, or has another entry where the snapshot ends.
func (st *storage) removeReplacedLog(found diskState) error {
	if found.Snapshot == 0 || found.OwnSnapshot || found.Last == 0 || found.First > found.Snapshot {
		return nil
	}
	if found.Last >= found.Snapshot {
		term, err := st.termAt(found.Snapshot)
		if errors.Is(err, raft.ErrLogNotFound) || err == nil && term == found.SnapshotTerm {
			return nil
		}
		if err != nil {
			return storageError("read the raft log", err)
		}
	}
	return st.log.DeleteRange(found.First, found.Last)
}
