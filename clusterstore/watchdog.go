package clusterstore

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// guardedLog is raft's log with a watchdog. A leader whose disk stalls keeps sending heartbeats and never steps down,
// so nobody can write anywhere: a write of the log that takes too long ends the process. Entries of a write that is
// cut off like this may be on disk; to whoever proposed them their outcome is unknown.
type guardedLog struct {
	raft.LogStore
	limit time.Duration
	bark  func(op string, after time.Duration)
	grown func()                             // the log got longer
	tell  func(entries int, d time.Duration) // of a write that went well; nil: nobody
}

// StoreLog stores one entry under the watchdog.
func (g *guardedLog) StoreLog(entry *raft.Log) error { return g.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries under the watchdog.
func (g *guardedLog) StoreLogs(entries []*raft.Log) error {
	defer g.watch("append").Stop()
	start := time.Now()
	err := g.LogStore.StoreLogs(entries)
	if err == nil {
		g.grown()
		if g.tell != nil {
			g.tell(len(entries), time.Since(start))
		}
	}
	return err
}

// DeleteRange deletes entries under the watchdog.
func (g *guardedLog) DeleteRange(from, to uint64) error {
	defer g.watch("truncate").Stop()
	return g.LogStore.DeleteRange(from, to)
}

func (g *guardedLog) watch(op string) *time.Timer {
	return time.AfterFunc(g.limit, func() { g.bark(op, g.limit) })
}

// stalled is what the watchdog does.
func (s *Store) stalled(op string, after time.Duration) {
	if f := s.cfg.Events.Stalled; f != nil {
		f(op, after)
	}
	why := fmt.Errorf("clusterstore: the disk stalls: one %s of the raft log takes longer than %s", op, after)
	if refused := s.log.Refused(); refused != nil { // it waits for room in memory, which there is none on the disk for
		why = fmt.Errorf("%w: %w", why, refused)
	}
	s.cfg.Guard.Kill(why)
}
