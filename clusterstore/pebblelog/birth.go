package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// DB is a Pebble database, of any kind, whose opening and whose flushes end where the system refuses what they need. Pebble
// itself tries a flush again at once, for ever, and without a word to who waits for it. Where its write-ahead log is refused
// while it lives, its logger ends the process: see refused.go.
type DB struct {
	*pebble.DB
	dir       string
	log       pebble.Logger
	born      atomic.Bool
	ending    atomic.Bool
	unflushed chan error // why a flush failed that the system refused
}

// OpenDB is pebble.Open. What the write-ahead logs hold is written into tables by it; where that is refused, as on a full
// disk, the first refusal is the answer. Nothing is lost by it: the write-ahead logs stay.
//
// What was begun then goes on, with pauses, and gives the directory back once it could be done, or with the process.
func OpenDB(dir string, o *pebble.Options) (*DB, error) {
	d := &DB{dir: dir, log: o.Logger, unflushed: make(chan error, 1)}
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
	listener.FlushEnd = d.flushed
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
		return nil, fmt.Errorf("what the write-ahead log in %s holds cannot be written to a table: %w", dir, err)
	}
}

// Close is that of Pebble. What is refused from now on is its error.
func (d *DB) Close() error {
	d.ending.Store(true)
	return d.DB.Close()
}

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
	select {
	case d.unflushed <- info.Err:
	default: // it is known
	}
	if !d.born.Load() {
		time.Sleep(birthPause) // Pebble makes none; it holds a lock that nobody else can want yet
	}
}

// birthPause is how long a flush of an opening that was given up is not tried again.
const birthPause = 100 * time.Millisecond
