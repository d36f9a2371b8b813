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

// DB is a Pebble database, of any kind, whose opening, whose flushes and whose checkpoints end where the system refuses what they
// need. Pebble itself tries a flush again at once, for ever, and without a word to who waits for it; here it makes a pause between
// (pace.go). Where its write-ahead log is refused while it lives, its logger ends the process: see refused.go.
type DB struct {
	*pebble.DB
	dir       string
	log       pebble.Logger
	pace      pace
	born      atomic.Bool
	ending    atomic.Bool
	unflushed chan error // why a flush failed that the system refused, or an opening
}

// OpenDB is pebble.Open. What the write-ahead logs hold is written into tables by it; where that is refused, as on a full
// disk, the first refusal is the answer. Nothing is lost by it: the write-ahead logs stay.
//
// What was begun then goes on, with pauses, and gives the directory back once it could be done, or with the process. Where a name in
// the directory could not be synced it stands still: see walDir.
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
				_ = r.db.Close() // nobody is there to be told
			}
		}()
		return nil, err
	}
}

// Close is that of Pebble. What is refused from now on is its error.
func (d *DB) Close() error {
	if !d.ending.Swap(true) {
		close(d.pace.over)
	}
	return d.DB.Close()
}

// Checkpoint is that of Pebble, which panics where the system refuses to sync the new directory. Nothing is lost by that but the
// checkpoint.
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

// Refused is what the system said where it refused a table in the last minute; nil: it did not.
func (d *DB) Refused() error { return d.pace.lately() }

// Flush writes what is in memory into tables. It returns when that is done, when the system refuses it, or when ctx ends;
// then it is tried on.
func (d *DB) Flush(ctx context.Context) error {
	select {
	case <-d.unflushed: // an earlier one, which may have been done since
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

// flushed is told of every flush: also of those that had nothing to write, which Pebble calls an error.
func (d *DB) flushed(info pebble.FlushInfo) {
	var why syscall.Errno
	if !errors.As(info.Err, &why) {
		return
	}
	d.pace.failure(info.Err) // before who waits for it hears of it
	if d.born.Load() {
		d.tell(info.Err)
	} else {
		d.tell(fmt.Errorf("what the write-ahead log in %s holds cannot be written to a table: %w", d.dir, info.Err))
	}
}

// unreadable is told of a block without its checksum by whoever reads it.
func (d *DB) unreadable(next func(pebble.DataCorruptionInfo)) func(pebble.DataCorruptionInfo) {
	return func(info pebble.DataCorruptionInfo) {
		if next != nil {
			next(info)
		}
		d.pace.rest(tablePause)
	}
}

func (d *DB) tell(err error) {
	select {
	case d.unflushed <- err:
	default: // it is known
	}
}

// failed is told what goes wrong with tables in the background, where it is tried again. A lock is held meanwhile that readers want.
func (d *DB) failed(err error) {
	d.pace.failure(err)
	if d.born.Load() && d.pace.tell() {
		d.log.Errorf("tables in %s cannot be written, which is tried again: %v", d.dir, err)
	}
}
