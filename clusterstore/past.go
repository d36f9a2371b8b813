package clusterstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// EntryID names one entry of a raft log. The zero EntryID names none. Two logs that hold an entry of the same id are equal
// up to this entry, unless one of them was rolled back together with its term.
type EntryID struct{ Index, Term uint64 }

// Past is what this node's disk held when the ledger was opened, before raft appended anything. Config.CheckPast compares
// it with a record of an earlier time that is kept elsewhere: entries that a start appends, however often it is repeated,
// cannot replace entries that were lost.
type Past struct {
	Deployment string  // "" for a new ledger
	Last       EntryID // the last entry of log, state or snapshot
	Closed     bool    // the ledger was closed; a process that was killed does not close it
	Discarded  int64   // bytes of the log after its last readable record: a torn write, or damaged records
	snapshot   EntryID // the newest snapshot, or the state where that is newer
	termAt     func(index uint64) (term uint64, err error)
}

// Holds reports whether the disk held the entry: the log has it, with this term, or a snapshot includes it.
func (p Past) Holds(record EntryID) (bool, error) {
	switch {
	case record.Index > p.Last.Index:
		return false, nil
	case record.Index == 0:
		return true, nil
	}
	term, err := p.termAt(record.Index)
	if errors.Is(err, raft.ErrLogNotFound) { // truncated after a snapshot
		return record.Index <= p.snapshot.Index && record.Term <= p.snapshot.Term, nil
	}
	return term == record.Term, err
}

// WasClosed reports whether the ledger in a directory was closed: a copy of one that runs, or whose process was killed, was not.
// It must be asked before the first Open, whose end closes the ledger, also if Open returns an error.
func WasClosed(dir string) (bool, error) {
	tail, err := pebblelog.InspectTail(vfs.Default, vfs.Default.PathJoin(dir, logDir))
	return tail.Closed, err
}

// checkPast calls Config.CheckPast with what inspectDisk has found.
func (st *storage) checkPast(ctx context.Context, found diskState) error {
	if st.cfg.CheckPast == nil {
		return nil
	}
	p := Past{Deployment: st.fsm.header.Deployment, Closed: st.logTail.Closed, Discarded: st.logTail.Discarded, termAt: st.termAt}
	if p.snapshot = (EntryID{found.Applied, found.AppliedTerm}); found.Snapshot > found.Applied {
		p.snapshot = EntryID{found.Snapshot, found.SnapshotTerm}
	}
	p.Last = p.snapshot
	if found.Last > p.Last.Index {
		term, err := st.termAt(found.Last)
		if err != nil {
			return storageError("read the raft log", err)
		}
		p.Last = EntryID{found.Last, term}
	}
	if p.Deployment == "" && found.Last > 0 { // the entry that names it may not be in the state yet
		name, err := st.deploymentInLog(found.First)
		if err != nil {
			return err
		}
		p.Deployment = name
	}
	return st.cfg.CheckPast(ctx, p)
}

func (st *storage) termAt(index uint64) (uint64, error) {
	var entry raft.Log
	err := st.log.GetLog(index, &entry)
	return entry.Term, err
}

// deploymentInLog returns the deployment in the Bootstrap command of a log, or "" if the log has no such command.
func (st *storage) deploymentInLog(first uint64) (name string, err error) {
	err = st.log.Scan(first, func(entry *raft.Log) error {
		if entry.Type != raft.LogCommand || name != "" {
			return nil
		}
		_, commands, err := decodeEntry(entry.Data, st.cfg.Limits.levels.Max)
		for _, c := range commands {
			if b, ok := c.(*flight.Bootstrap); ok {
				name = b.Deployment
			}
		}
		return err
	})
	return name, storageError(fmt.Sprintf("read the raft log after entry %d", first), err)
}
