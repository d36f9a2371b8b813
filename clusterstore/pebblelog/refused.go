package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walFS notices what the system refuses to the write-ahead log of a database that lives. Pebble cannot go on after that, and
// mostly panics where it comes upon it. Here its logger is told first, which ends the process: nobody who waits for a write
// or a sync that was refused is ever answered. It keeps the pace of new tables, too.
type walFS struct {
	vfs.FS
	db *DB
}

// walCategory is what Pebble calls the files of a write-ahead log.
const walCategory = "pebble-wal"

func (f walFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		f.db.pace.wait()
	}
	file, err := f.FS.Create(name, c)
	return f.begun(file, err, c)
}

func (f walFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.begun(file, err, c)
}

func (f walFS) begun(file vfs.File, err error, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c != walCategory {
		return file, err
	}
	if err != nil {
		return nil, f.db.refused(err)
	}
	return walFile{file, f.db}, nil
}

// OpenDir also watches the database's directory: a log of which the name was not kept is none.
func (f walFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || name != f.db.dir {
		return dir, err
	}
	return walDir{walFile{dir, f.db}}, nil
}

// Open watches who reads tables.
func (f walFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return tableFile{file, f.db}, nil
}

// tableFile is a table that is read.
type tableFile struct {
	vfs.File
	db *DB
}

func (f tableFile) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(b, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		f.db.pace.rest(tablePause)
	}
	return n, err
}

// walDir is the directory of a database. Where its sync is refused while the database is opened, Pebble panics, in whichever
// goroutine: so the opening is told, and that goroutine stands still until the process ends. A sync that is tried again may succeed
// although a name is lost, and Pebble would then remove what that name was to replace.
type walDir struct{ walFile }

func (d walDir) Sync() error {
	err := d.walFile.Sync()
	if err != nil && !d.db.born.Load() {
		d.db.tell(fmt.Errorf("sync %s: %w", d.db.dir, err))
		select {}
	}
	return err
}

// walFile is one log, or the directory of all.
type walFile struct {
	vfs.File
	db *DB
}

func (f walFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.db.refused(err)
}

func (f walFile) Sync() error { return f.db.refused(f.File.Sync()) }

func (f walFile) SyncData() error { return f.db.refused(f.File.SyncData()) }

func (f walFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.db.refused(err)
}

func (f walFile) Close() error { return f.db.refused(f.File.Close()) }

// refused passes on what the system said. An opening and a stop have somebody to tell of it; in between it is the end.
func (d *DB) refused(err error) error {
	if err != nil && d.born.Load() && !d.ending.Load() {
		d.log.Fatalf("the write-ahead log in %s cannot be written: %v", d.dir, err)
	}
	return err
}
