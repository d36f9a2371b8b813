package clusterstore

import "github.com/flightd/flightd/flight"

// Stats are figures of this node's part of the ledger, for metrics and doctor.
type Stats struct {
	Reconciling     bool // a restore is not finished
	Leading         bool
	Term            uint64
	Commit          uint64   // index of the newest entry known to be committed
	Applied         uint64   // index of the newest entry applied here
	First           uint64   // index of the oldest entry in the log
	Last            uint64   // index of the newest entry in the log
	LogBytes        uint64   // bytes of disk used by the raft log
	StateBytes      uint64   // bytes of disk used by the state
	CompactionDebt  uint64   // bytes of the state that wait for compaction, as Pebble estimates
	FreeBytes       uint64   // bytes of free disk space
	FreeKnown       bool     // the file system reported the free space
	Damaged         bool     // a block on the disk was found damaged since the start
	Spooled         int      // reports in this node's spool that are not committed
	Quarantined     int      // quarantined reports; below zero: the directory cannot be read
	QuarantineFiles []string // names of the quarantined reports
	Flights         [flight.StateExpired + 1]int64
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

// diskBytes returns the disk space of the state, or 0 after close.
func (s *state) diskBytes() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return 0
	}
	return s.db.Metrics().DiskSpaceUsage()
}
