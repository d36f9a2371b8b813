package clusterstore

import "github.com/flightd/flightd/flight"

// Stats are figures of this node's part of the ledger, for metrics and doctor.
type Stats struct {
	Reconciling    bool // a restore is not finished
	Leading        bool
	Term           uint64
	Commit         uint64 // index of the newest entry known to be committed
	Applied        uint64 // index of the newest entry applied here
	First          uint64 // index of the oldest entry in the log
	Last           uint64 // index of the newest entry in the log
	LogBytes       uint64 // bytes of disk used by the raft log
	StateBytes     uint64 // bytes of disk used by the state
	CompactionDebt uint64 // bytes of the state that wait for compaction, as Pebble estimates
	FreeBytes      uint64 // bytes of free disk space
	FreeKnown      bool   // the file system reported the free space
	Spooled        int    // reports in this node's spool that are not committed
	Quarantined    int    // quarantined reports; below zero: the directory cannot be read
	Flights        [flight.StateExpired + 1]int64
}

// Stats returns the figures. It does not wait and asks no other node.
func (s *Store) Stats() Stats {
	now := s.fsm.published.Load()
	stats := Stats{
		Leading: s.leading.Load() != nil, Term: s.raft.CurrentTerm(), Commit: s.raft.CommitIndex(), Applied: now.meta.Applied,
		LogBytes: s.log.DiskBytes(), StateBytes: s.state.diskBytes(), CompactionDebt: s.state.compactionDebt(), Spooled: s.Spooled(), Quarantined: s.spool.quarantined(), Flights: now.meta.Counts, Reconciling: now.header.Reconciling,
	}
	stats.First, _ = s.log.FirstIndex() // it never returns an error
	stats.Last, _ = s.log.LastIndex()   // it never returns an error
	if usage, err := s.cfg.FS.GetDiskUsage(s.cfg.Dir); err == nil {
		stats.FreeBytes, stats.FreeKnown = usage.AvailBytes, true
	}
	return stats
}

// compactionDebt returns how many bytes compactions still have to read, as Pebble estimates.
func (s *state) compactionDebt() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return 0
	}
	return s.db.Metrics().Compact.EstimatedDebt
}

// diskBytes returns the disk space of the state; 0 after close.
func (s *state) diskBytes() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return 0
	}
	return s.db.Metrics().DiskSpaceUsage()
}
