package clusterstore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// watchedLog is raft's log with a watchdog. A leader with a stalled disk keeps sending heartbeats and never steps
// down, so no node can write. Therefore a write of the log that takes longer than timeout ends the process.
//
// If the process dies during such a write, its entries may be on disk; their callers were not answered.
type watchedLog struct {
	snaps *snapshots
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
	defer l.startWatchdog("append")()
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
	defer l.startWatchdog("truncate")()
	return l.LogStore.DeleteRange(from, to)
}

// watchdogSteps is the number of steps in which the watchdog counts its time-out.
const watchdogSteps = 10

// startWatchdog watches a write until stop is called. It counts time in steps, each from the end of the last one. A process that was
// frozen during a write, by SIGSTOP or with its virtual machine, has lost one step by that, and its disk is not blamed.
func (l *watchedLog) startWatchdog(op string) (stop func()) {
	var mu sync.Mutex // guards the variables below
	var timer *time.Timer
	left, stopped := watchdogSteps, false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(l.timeout/watchdogSteps, func() {
		mu.Lock()
		defer mu.Unlock()
		switch left--; {
		case stopped:
		case left > 0:
			timer.Reset(l.timeout / watchdogSteps)
		default:
			l.onStall(op, l.timeout)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
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

// GetLog returns an entry. Of the last entry that the newest snapshot covers it returns index and term, also when a Scrub has deleted the entry:
// a leader that replaces what follows compares them. Without that it would go back to before the snapshot, and send older ones for ever.
func (l *watchedLog) GetLog(index uint64, entry *raft.Log) error {
	err := l.LogStore.GetLog(index, entry)
	if !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	if all, unread := l.snaps.List(); unread == nil && len(all) > 0 && all[0].Index == index {
		*entry = raft.Log{Index: index, Term: all[0].Term, Type: raft.LogNoop}
		return nil
	}
	return err
}
