package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walFS ends the process when a write or sync of the write-ahead log of an open database fails. Pebble cannot go on
// after such an error and mostly panics later. The logger's Fatalf ends the process first, so that no caller that waits
// for the failed write gets an answer. walFS also delays new tables after a failure (throttle.go).
type walFS struct {
	vfs.FS
	db *DB
}

// walCategory is Pebble's name for the files of a write-ahead log.
const walCategory = "pebble-wal"

func (f walFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		f.db.throttle.delayTable()
	}
	file, err := f.FS.Create(name, c)
	return f.wrapWAL(file, err, c)
}

func (f walFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.wrapWAL(file, err, c)
}

func (f walFS) wrapWAL(file vfs.File, err error, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c != walCategory {
		return file, err
	}
	if err != nil {
		return nil, f.db.checkWAL(err)
	}
	return walFile{file, f.db}, nil
}

// OpenDir wraps the database's directory too: a log file whose directory entry is not synced can be lost.
func (f walFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || name != f.db.dir {
		return dir, err
	}
	return walDir{walFile{dir, f.db}}, nil
}

// Open wraps tables, whose failed reads are delayed.
func (f walFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return throttledTable{file, f.db}, nil
}

// throttledTable is a table that is being read. It delays the return of a read error.
type throttledTable struct {
	vfs.File
	db *DB
}

func (t throttledTable) ReadAt(b []byte, offset int64) (int, error) {
	n, err := t.File.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		t.db.throttle.sleep(tablePause)
	}
	return n, err
}

// walDir is the directory of a database. If its sync fails during the open, Pebble panics in whichever goroutine called
// it.
type walDir struct{ walFile }

// Sync returns the error of an open database through checkWAL. During the open it signals the error to OpenDB and then
// blocks its goroutine until the process ends.
//
// It must not return: a repeated sync may succeed although the directory entry is lost, and Pebble would then remove
// the file that the lost entry was to replace.
func (d walDir) Sync() error {
	err := d.walFile.Sync()
	if err != nil && !d.db.opened.Load() {
		d.db.signal(fmt.Errorf("sync %s: %w", d.db.dir, err))
		select {}
	}
	return err
}

// walFile is one log file, or the directory that holds them. Its errors go through checkWAL.
type walFile struct {
	vfs.File
	db *DB
}

func (f walFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.db.checkWAL(err)
}

func (f walFile) Sync() error { return f.db.checkWAL(f.File.Sync()) }

func (f walFile) SyncData() error { return f.db.checkWAL(f.File.SyncData()) }

func (f walFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.db.checkWAL(err)
}

func (f walFile) Close() error { return f.db.checkWAL(f.File.Close()) }

// checkWAL returns err while the database is being opened or closed: a caller waits for the error there. In between it
// ends the process.
func (d *DB) checkWAL(err error) error {
	if err != nil && d.opened.Load() && !d.closing.Load() {
		d.log.Fatalf("cannot write the write-ahead log in %s: %v", d.dir, err)
	}
	return err
}
