package pebblelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Tail describes the end of a write-ahead log. A process that is killed leaves a log without an end mark. One that dies
// during a write, or whose disk damages the last records, leaves bytes after the last readable record, which Open
// discards: Pebble cannot tell the two apart.
type Tail struct {
	Closed    bool  // the log has its end mark: Close wrote it
	Discarded int64 // bytes after the last readable record
}

// endMark is the length of the record with which Pebble ends a log.
const endMark = 19

// InspectTail reads the newest write-ahead log of a store that is not open. A store without a log counts as closed.
func InspectTail(fs vfs.FS, dir string) (t Tail, err error) {
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	switch {
	case err != nil && !oserror.IsNotExist(err):
		return t, fmt.Errorf("pebblelog: list the write-ahead logs: %w", err)
	case len(logs) == 0:
		return Tail{Closed: true}, nil
	}
	reader := logs[len(logs)-1].OpenForRead()
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		_, at, readErr := reader.NextRecord()
		if readErr == nil {
			continue
		}
		rest, err := readFrom(fs, at.PhysicalFile, at.Physical)
		if err != nil {
			return t, err
		}
		n := len(bytes.TrimRight(rest, "\x00"))
		if errors.Is(readErr, io.EOF) && 0 < n && n <= endMark {
			return Tail{Closed: true}, nil
		}
		return Tail{Discarded: int64(n)}, nil
	}
}

func readFrom(fs vfs.FS, path string, offset int64) (rest []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, offset, info.Size()-offset))
}
