package clusterstore

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// watchedLog is raft's log with a watchdog. A leader with a stalled disk keeps sending heartbeats and never steps
// down, so no node can write. Therefore a write of the log that takes longer than timeout ends the process.
//
// If the process dies during such a write, its entries may be on disk; their callers were not answered.
type watchedLog struct {
	raft.LogStore
	timeout     time.Duration
	onStall     func(op string, after time.Duration)
	onGrowth    func()                             // called after every successful append
	onAppended  func(entries int, d time.Duration) // likewise; may be nil
	markStarted func() error                       // called after every append, before raft may acknowledge it
}

// StoreLog stores one entry under the watchdog.
func (l *watchedLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries under the watchdog.
func (l *watchedLog) StoreLogs(entries []*raft.Log) error {
	defer l.startWatchdog("append").Stop()
	start := time.Now()
	err := l.LogStore.StoreLogs(entries)
	if err == nil {
		err = l.markStarted()
	}
	if err == nil {
		l.onGrowth()
		if l.onAppended != nil {
			l.onAppended(len(entries), time.Since(start))
		}
	}
	return err
}

// IsMonotonic is that of pebblelog: raft removes the old log after it has installed a snapshot.
func (l *watchedLog) IsMonotonic() bool { return true }

// DeleteRange deletes entries under the watchdog.
func (l *watchedLog) DeleteRange(from, to uint64) error {
	defer l.startWatchdog("truncate").Stop()
	return l.LogStore.DeleteRange(from, to)
}

func (l *watchedLog) startWatchdog(op string) *time.Timer {
	return time.AfterFunc(l.timeout, func() { l.onStall(op, l.timeout) })
}

// onStall kills the process. The watchdog's timer calls it.
func (st *storage) onStall(op string, after time.Duration) {
	if f := st.cfg.Events.Stalled; f != nil {
		f(op, after)
	}
	why := fmt.Errorf("clusterstore: the disk stalls: one %s of the raft log takes longer than %s", op, after)
	if refused := st.log.TableError(); refused != nil { // the write waits for a flush that the system rejects
		why = fmt.Errorf("%w: %w", why, refused)
	}
	st.cfg.Limits.Kill(why)
}
