package clusterstore

import "fmt"

// standing is what a start finds: how far the state is, which snapshot there is, and what the log holds.
type standing struct {
	Began                bool   // the log had an entry once
	Applied, AppliedTerm uint64 // of the state; 0: it is empty
	Snapshot             uint64 // index of the newest one; 0: there is none
	Own                  bool   // it was made of this node's state, so that its log came as far
	Unread               error  // why another one, that may be whole, cannot be read now; nil: there is none such
	First, Last          uint64 // of the log; 0: it is empty
	Termed               bool   // raft's term is known: the log's database was not lost
	TermAtApplied        uint64 // of the log's entry at Applied; 0: the log does not hold it
}

// plan decides whether a start goes on from the state, or restores the newest snapshot first, or must not be made. It
// goes on only where log, snapshot and state together still hold everything that was ever applied.
func plan(s standing) (restore bool, err error) {
	base := max(s.Applied, s.Snapshot)
	switch {
	case base > 0 && !s.Termed:
		return false, fmt.Errorf("%w: the raft log is gone while a state up to entry %d is there: this node has forgotten its votes; remove the whole directory and let it join as a new node, or restore a backup", ErrDamaged, base)
	case s.Unread != nil && (base == 0 || s.First > base+1):
		return false, fmt.Errorf("clusterstore: what stands behind entry %d is in a snapshot that cannot be read now: %w", base, s.Unread)
	case s.Began && base == 0 && s.Last == 0:
		return false, fmt.Errorf("%w: this ledger has begun, and its log, its state and its snapshots are gone; as a new one it would know of nothing that was done", ErrDamaged)
	case s.First > base+1:
		return false, fmt.Errorf("%w: entries %d to %d are neither in the state, nor in a readable snapshot, nor in the log", ErrDamaged, base+1, s.First-1)
	case s.Last < s.Applied && s.Snapshot < s.Applied:
		return false, fmt.Errorf("%w: the log ends at entry %d, but entry %d was applied: entries that were durable are gone", ErrDamaged, s.Last, s.Applied)
	case s.Last < s.Snapshot && s.Own:
		return false, fmt.Errorf("%w: the log ends at entry %d, but a snapshot was taken here at entry %d: entries that were durable are gone", ErrDamaged, s.Last, s.Snapshot)
	case s.TermAtApplied != 0 && s.TermAtApplied != s.AppliedTerm:
		return false, fmt.Errorf("%w: entry %d is of term %d in the log and of term %d in the state: they are not of the same history", ErrDamaged, s.Applied, s.TermAtApplied, s.AppliedTerm)
	}
	return s.Snapshot > s.Applied, nil
}
