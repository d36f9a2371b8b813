package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// DB is a Pebble database that returns the errors of the operating system. Pebble itself retries a failed flush at once
// and for ever, and never returns its error; OpenDB, Flush and Checkpoint return it, and retries are delayed
// (throttle.go). If the write-ahead log of an open database cannot be written, the logger ends the process (walfs.go).
type DB struct {
	*pebble.DB
	fs          vfs.FS
	dir         string
	log         pebble.Logger
	throttle    throttle
	opened      atomic.Bool // pebble.Open has returned
	closing     atomic.Bool // Close was called
	writeErrors chan error  // takes one error: of a flush, or of a directory sync during the open
}

// OpenDB is pebble.Open, which replays the write-ahead logs into tables. If the operating system rejects a write, as on
// a full disk, OpenDB returns the first such error. No data is lost: the write-ahead logs remain.
//
// After such an error Pebble goes on in the background, with pauses, and holds the lock of the directory until it has
// finished or the process ends. After a failed sync of the directory it never finishes: see walDir.
func OpenDB(dir string, o *pebble.Options) (*DB, error) {
	d := &DB{dir: dir, log: o.Logger, throttle: throttle{closed: make(chan struct{})}, writeErrors: make(chan error, 1)}
	if d.log == nil {
		d.log = pebble.DefaultLogger
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	d.fs, o.FS = o.FS, walFS{o.FS, d}
	listener := new(pebble.EventListener)
	if o.EventListener != nil {
		*listener = *o.EventListener
	}
	listener.FlushEnd, listener.BackgroundError = d.onFlushEnd, d.onBackgroundError
	listener.DataCorruption = d.onCorruption(listener.DataCorruption)
	o.EventListener = listener
	type outcome struct {
		db  *pebble.DB
		err error
	}
	done := make(chan outcome, 1)
	// OpenDB waits for this goroutine unless a write fails first; then the goroutine below waits for it.
	go func() {
		db, err := pebble.Open(dir, o)
		done <- outcome{db, err}
	}()
	select {
	case r := <-done:
		d.opened.Store(true)
		if d.DB = r.db; r.err != nil {
			return nil, r.err
		}
		return d, nil
	case err := <-d.writeErrors:
		go func() {
			if r := <-done; r.err == nil {
				_ = r.db.Close() // OpenDB has returned: no caller gets this error
			}
		}()
		return nil, err
	}
}

// Close ends all pauses and closes the database. From here on, Close returns errors of the write-ahead log, and the
// process goes on.
func (d *DB) Close() error {
	if !d.closing.Swap(true) {
		close(d.throttle.closed)
	}
	return d.DB.Close()
}

// Checkpoint is that of Pebble, which panics if the new directory cannot be synced. Checkpoint returns that error
// instead: only the checkpoint is lost.
func (d *DB) Checkpoint(dir string, opts ...pebble.CheckpointOption) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		cause, known := p.(error)
		if !known || !errors.As(cause, new(syscall.Errno)) {
			panic(p)
		}
		err = fmt.Errorf("sync %s: %w", dir, cause)
	}()
	return d.DB.Checkpoint(dir, opts...)
}

// TableError returns the last error of the operating system if a table write failed in the last minute, else nil.
func (d *DB) TableError() error { return d.throttle.recentError() }

// Flush writes the memtable into tables. It returns when that is done, when the operating system rejects a write, or
// when ctx ends. Pebble goes on retrying after an error.
func (d *DB) Flush(ctx context.Context) error {
	select {
	case <-d.writeErrors: // error of an earlier flush, which may have succeeded since
	default:
	}
	done, err := d.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case err := <-d.writeErrors:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// onFlushEnd handles the end of a flush. Pebble also reports an error for a flush without data, which is ignored.
func (d *DB) onFlushEnd(info pebble.FlushInfo) {
	if !errors.As(info.Err, new(syscall.Errno)) {
		return
	}
	d.throttle.recordFailure(info.Err) // first: a caller that sees the error may ask TableError for it
	if d.opened.Load() {
		d.signal(info.Err)
	} else {
		d.signal(fmt.Errorf("replay the write-ahead log in %s: cannot write a table: %w", d.dir, info.Err))
	}
}

// onCorruption delays the reader of a block with a checksum mismatch: Pebble would retry a compaction at once.
func (d *DB) onCorruption(next func(pebble.DataCorruptionInfo)) func(pebble.DataCorruptionInfo) {
	return func(info pebble.DataCorruptionInfo) {
		if next != nil {
			next(info)
		}
		d.throttle.sleep(tablePause)
	}
}

// signal wakes the waiting OpenDB or Flush with err. It never blocks.
func (d *DB) signal(err error) {
	select {
	case d.writeErrors <- err:
	default: // an earlier error is not taken yet
	}
}

// onBackgroundError records a failed background write of a table, which Pebble retries. It must not block: Pebble holds
// a lock that readers need.
func (d *DB) onBackgroundError(err error) {
	d.throttle.recordFailure(err)
	if d.opened.Load() && d.throttle.shouldLog() {
		d.log.Errorf("cannot write tables in %s; retrying: %v", d.dir, err)
	}
}
