package clusterstore

import "fmt"

// diskState describes the data directory at a start: how far the state was applied, the newest snapshot, and the
// range of the log. A zero index means none.
type diskState struct {
	Started              bool   // IDENTITY says that the log had an entry
	Applied, AppliedTerm uint64 // index and term of the last entry in the state
	Snapshot             uint64 // index of the newest readable snapshot
	SnapshotTerm         uint64 // its term
	OwnSnapshot          bool   // the snapshot was taken on this node, so its log reached at least that index
	SnapshotErr          error  // why another, possibly intact snapshot cannot be read now; nil: none
	First, Last          uint64 // of the log
	HasTerm              bool   // raft's term is stored: the log database was not lost
	TermAtApplied        uint64 // term of the log entry at Applied; 0: the log does not hold it
}

// planRecovery decides whether a start continues with the state or restores the newest snapshot first. It returns
// ErrDamaged unless log, snapshot and state together still hold every entry that was ever applied.
func planRecovery(s diskState) (restore bool, err error) {
	base := max(s.Applied, s.Snapshot)
	switch {
	case base > 0 && !s.HasTerm:
		return false, fmt.Errorf("%w: the raft log is gone, but the state holds entries up to %d: this node has forgotten its votes; restore a backup, or remove the whole directory and let it join as a new node", ErrDamaged, base)
	case s.SnapshotErr != nil && (base == 0 || s.First > base+1):
		return false, fmt.Errorf("clusterstore: the entries after %d are in a snapshot that cannot be read now: %w", base, s.SnapshotErr)
	case s.Started && base == 0 && s.Last == 0:
		return false, fmt.Errorf("%w: this ledger had entries, but its log, its state and its snapshots are gone; a new ledger here would repeat effects that happened", ErrDamaged)
	case s.First > base+1:
		return false, fmt.Errorf("%w: entries %d to %d are neither in the state, nor in a readable snapshot, nor in the log", ErrDamaged, base+1, s.First-1)
	case s.Last < s.Applied && s.Snapshot < s.Applied:
		return false, fmt.Errorf("%w: the log ends at entry %d, but entry %d was applied: durable entries are lost", ErrDamaged, s.Last, s.Applied)
	case s.Last < s.Snapshot && s.OwnSnapshot:
		return false, fmt.Errorf("%w: the log ends at entry %d, but a snapshot was taken here at entry %d: durable entries are lost", ErrDamaged, s.Last, s.Snapshot)
	case s.TermAtApplied != 0 && s.TermAtApplied != s.AppliedTerm:
		return false, fmt.Errorf("%w: entry %d is of term %d in the log and of term %d in the state: log and state belong to different histories", ErrDamaged, s.Applied, s.TermAtApplied, s.AppliedTerm)
	}
	return s.Snapshot > s.Applied, nil
}
