package clusterstore

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// streamCheckpoint returns a checkpoint snapshot as a stream of rows, and the length of the stream. Raft needs the
// length in advance, so the rows are read twice; only a backup and a node that joins or lost its state read a
// snapshot. The caller has pinned the snapshot, and closing the stream unpins it.
//
// Close waits for the goroutine that writes the stream.
func (s *snapshots) streamCheckpoint(name string) (io.ReadCloser, int64, error) {
	db, err := s.openDatabase(name)
	if err != nil {
		return nil, 0, err
	}
	var size byteCounter
	if err := s.writeRows(&size, db); err != nil {
		return nil, 0, errors.Join(err, s.closeDatabase(name))
	}
	r, w := io.Pipe()
	stream := &checkpointStream{PipeReader: r, snaps: s, name: name, writerDone: make(chan struct{})}
	go func() {
		defer close(stream.writerDone)
		w.CloseWithError(s.writeRows(w, db)) // nil becomes io.EOF
	}()
	return stream, int64(size), nil
}

// openCheckpoint is the database of a checkpoint, which a process can open only once, and how many streams read it.
type openCheckpoint struct {
	db      *pebble.DB
	streams int
}

// openDatabase returns the database of a checkpoint, which several streams may read: a backup, and those for nodes that join.
func (s *snapshots) openDatabase(name string) (*pebble.DB, error) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	c := s.open[name]
	if c == nil {
		o := s.options()
		o.ReadOnly = true
		db, err := pebble.Open(s.path(name, checkpointDir), o)
		if err != nil {
			return nil, storageError("open snapshot "+name, err)
		}
		c = &openCheckpoint{db: db}
		s.open[name] = c
	}
	c.streams++
	return c.db, nil
}

// closeDatabase ends one use of the database of a checkpoint.
func (s *snapshots) closeDatabase(name string) error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	c := s.open[name]
	if c.streams--; c.streams > 0 {
		return nil
	}
	delete(s.open, name)
	return c.db.Close()
}

// writeRows writes all rows of a database as a stream.
func (s *snapshots) writeRows(w io.Writer, db *pebble.DB) (err error) {
	var m meta
	value, closer, err := db.Get(kindKey(metaRow))
	if err != nil {
		return storageError("read the meta row of a snapshot", err)
	}
	if err := errors.Join(decodeMeta(value, s.cfg.Limits.levels.Max, &m), closer.Close()); err != nil {
		return err
	}
	rows, err := newRowWriter(w, streamHeader{Cluster: s.cluster, Applied: m.Applied})
	if err != nil {
		return err
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return storageError("read a snapshot", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return storageError("read a snapshot", err)
		}
		if err := rows.row(it.Key(), value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return storageError("read a snapshot", err)
	}
	return rows.end()
}

// checkpointStream is an open snapshot. Close waits for its goroutine.
type checkpointStream struct {
	*io.PipeReader
	snaps      *snapshots
	name       string
	writerDone chan struct{}
}

// Close stops the stream at any point.
func (c *checkpointStream) Close() error {
	err := c.PipeReader.Close()
	<-c.writerDone
	err = errors.Join(err, c.snaps.closeDatabase(c.name))
	c.snaps.unpin(c.name)
	return err
}

// byteCounter is a writer that counts bytes.
type byteCounter int64

func (c *byteCounter) Write(b []byte) (int, error) {
	*c += byteCounter(len(b))
	return len(b), nil
}
