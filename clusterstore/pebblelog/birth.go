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
	dir       string
	log       pebble.Logger
	pace      pace
	born      atomic.Bool // pebble.Open has returned
	ending    atomic.Bool // Close was called
	unflushed chan error  // takes one error: of a flush, or of a directory sync during the open
}

// OpenDB is pebble.Open, which replays the write-ahead logs into tables. If the operating system rejects a write, as on
// a full disk, OpenDB returns the first such error. No data is lost: the write-ahead logs remain.
//
// After such an error Pebble goes on in the background, with pauses, and holds the lock of the directory until it has
// finished or the process ends. After a failed sync of the directory it never finishes: see walDir.
func OpenDB(dir string, o *pebble.Options) (*DB, error) {
	d := &DB{dir: dir, log: o.Logger, pace: pace{over: make(chan struct{})}, unflushed: make(chan error, 1)}
	if d.log == nil {
		d.log = pebble.DefaultLogger
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	o.FS = walFS{o.FS, d}
	listener := new(pebble.EventListener)
	if o.EventListener != nil {
		*listener = *o.EventListener
	}
	listener.FlushEnd, listener.BackgroundError = d.flushed, d.failed
	listener.DataCorruption = d.unreadable(listener.DataCorruption)
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
		d.born.Store(true)
		if d.DB = r.db; r.err != nil {
			return nil, r.err
		}
		return d, nil
	case err := <-d.unflushed:
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
	if !d.ending.Swap(true) {
		close(d.pace.over)
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
		if why := syscall.Errno(0); !known || !errors.As(cause, &why) {
			panic(p)
		}
		err = fmt.Errorf("sync %s: %w", dir, cause)
	}()
	return d.DB.Checkpoint(dir, opts...)
}

// TableError returns the last error of the operating system if a table write failed in the last minute, else nil.
func (d *DB) Refused() error { return d.pace.lately() }

// Flush writes the memtable into tables. It returns when that is done, when the operating system rejects a write, or
// when ctx ends. Pebble goes on retrying after an error.
func (d *DB) Flush(ctx context.Context) error {
	select {
	case <-d.unflushed: // error of an earlier flush, which may have succeeded since
	default:
	}
	done, err := d.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case err := <-d.unflushed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// onFlushEnd handles the end of a flush. Pebble also reports an error for a flush without data, which is ignored.
func (d *DB) flushed(info pebble.FlushInfo) {
	var why syscall.Errno
	if !errors.As(info.Err, &why) {
		return
	}
	d.pace.failure(info.Err) // first: a caller that sees the error may ask TableError for it
	if d.born.Load() {
		d.tell(info.Err)
	} else {
		d.tell(fmt.Errorf("replay the write-ahead log in %s: cannot write a table: %w", d.dir, info.Err))
	}
}

// onCorruption delays the reader of a block with a checksum mismatch: Pebble would retry a compaction at once.
func (d *DB) unreadable(next func(pebble.DataCorruptionInfo)) func(pebble.DataCorruptionInfo) {
	return func(info pebble.DataCorruptionInfo) {
		if next != nil {
			next(info)
		}
		d.pace.rest(tablePause)
	}
}

// signal wakes the waiting OpenDB or Flush with err. It never blocks.
func (d *DB) tell(err error) {
	select {
	case d.unflushed <- err:
	default: // an earlier error is not taken yet
	}
}

// onBackgroundError records a failed background write of a table, which Pebble retries. It must not block: Pebble holds
// a lock that readers need.
func (d *DB) failed(err error) {
	d.pace.failure(err)
	if d.born.Load() && d.pace.tell() {
		d.log.Errorf("cannot write tables in %s; retrying: %v", d.dir, err)
	}
}
