package pebblelog

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Tables returns the paths of the tables of the database. A compaction may remove each of them at any time.
func (d *DB) Tables() (paths []string, err error) {
	levels, err := d.SSTables()
	for _, level := range levels {
		for _, table := range level {
			paths = append(paths, d.fs.PathJoin(d.dir, table.BackingSSTNum.String()+".sst"))
		}
	}
	return paths, err
}

// Tables returns the paths of the tables of the store. A compaction may remove each of them at any time.
func (s *Store) Tables() ([]string, error) {
	if !s.inFlight.Enter() {
		return nil, ErrClosed
	}
	defer s.inFlight.Leave()
	return s.db.Tables()
}

// VerifyTable reads a whole table from the file system, past Pebble's cache, and compares the checksum of each block. o are the options
// with which its database is open. pace is called before each read with the number of its bytes; its error ends VerifyTable.
func VerifyTable(fs vfs.FS, path string, o *pebble.Options, pace func(bytes int) error) (err error) {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(pacedFile{f, pace})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o.EnsureDefaults()
	ctx := context.Background()
	table, err := sstable.NewReader(ctx, readable, o.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	if err := table.ValidateBlockChecksums(); err != nil { // all but the blocks of values
		return err
	}
	layout, err := table.Layout()
	if err != nil {
		return err
	}
	for _, handle := range layout.ValueBlock {
		values, err := table.BlockReader().Read(ctx, block.NoReadEnv, nil, handle, blockkind.SSTableValue, func(*block.Metadata, []byte) error { return nil })
		if err != nil {
			return err
		}
		values.Release()
	}
	return nil
}

// pacedFile is a table that is read at a bounded rate.
type pacedFile struct {
	vfs.File
	pace func(bytes int) error
}

func (f pacedFile) ReadAt(b []byte, offset int64) (int, error) {
	if err := f.pace(len(b)); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, offset)
}
