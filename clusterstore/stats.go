package clusterstore

import "github.com/flightd/flightd/flight"

// Stats are figures of this node's part of the ledger, for those who watch it.
type Stats struct {
	Leading   bool
	Term      uint64
	Commit    uint64 // index of the newest entry that is known to be committed
	Applied   uint64 // index of the newest entry that was applied here
	First     uint64 // index of the oldest entry in the log
	Last      uint64 // index of the newest one
	LogBytes  uint64 // of disk that the raft log takes
	RowBytes  uint64 // of disk that the state takes
	Backlog   uint64 // bytes of the state that wait to be written anew in the background
	FreeBytes uint64 // of disk that are left
	FreeKnown bool   // whether the file system said so
	Spooled   int    // reports that wait on this node's disk
	Aside     int    // reports that were put aside there; below zero: it cannot be read
	Flights   [flight.Expired + 1]int64
}

// Stats reads the figures. It waits for nobody and asks no other node.
func (s *Store) Stats() Stats {
	now := s.machine.shown.Load()
	stats := Stats{
		Leading: s.leading.Load() != nil, Term: s.raft.CurrentTerm(), Commit: s.raft.CommitIndex(), Applied: now.meta.Applied,
		LogBytes: s.log.DiskBytes(), RowBytes: s.state.diskBytes(), Backlog: s.state.backlog(), Spooled: s.Spooled(), Aside: s.spool.aside(), Flights: now.meta.Counts,
	}
	stats.First, _ = s.log.FirstIndex() // it has no error
	stats.Last, _ = s.log.LastIndex()   // it has no error
	if usage, err := s.cfg.FS.GetDiskUsage(s.cfg.Dir); err == nil {
		stats.FreeBytes, stats.FreeKnown = usage.AvailBytes, true
	}
	return stats
}

// backlog is how many bytes compactions still have to read, by Pebble's own estimate.
func (s *state) backlog() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return 0
	}
	return s.db.Metrics().Compact.EstimatedDebt
}

// diskBytes is how much of the disk the state takes; 0 once it is closed.
func (s *state) diskBytes() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return 0
	}
	return s.db.Metrics().DiskSpaceUsage()
}
