package clusterstore

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// streamCheckpoint reads a snapshot that is a checkpoint as a stream of rows. Raft must know its length beforehand, so
// the rows are read twice; nobody asks for it but a node that lost its state, one that joins, and a backup. The caller
// holds the snapshot; the stream releases it.
func (s *snapshots) streamCheckpoint(name string) (io.ReadCloser, int64, error) {
	o := s.options()
	o.ReadOnly = true
	db, err := pebble.Open(s.path(name, checkpointDir), o)
	if err != nil {
		return nil, 0, storageError("snapshot "+name+" cannot be opened", err)
	}
	var size counter
	if err := s.writeRows(&size, db); err != nil {
		return nil, 0, errors.Join(err, db.Close())
	}
	r, w := io.Pipe()
	stream := &checkpointStream{PipeReader: r, snaps: s, name: name, db: db, ended: make(chan struct{})}
	go func() {
		defer close(stream.ended)
		w.CloseWithError(s.writeRows(w, db)) // nil becomes io.EOF
	}()
	return stream, int64(size), nil
}

// writeRows writes all rows of a database as a stream.
func (s *snapshots) writeRows(w io.Writer, db *pebble.DB) (err error) {
	var m meta
	value, closer, err := db.Get(singleRow(metaRow))
	if err != nil {
		return storageError("read a snapshot's meta row", err)
	}
	if err := errors.Join(decodeMeta(value, &m), closer.Close()); err != nil {
		return err
	}
	rows, err := newRowWriter(w, streamHead{Cluster: s.cluster, Applied: m.Applied})
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

// checkpointStream is a snapshot that is being read. Close waits for its goroutine.
type checkpointStream struct {
	*io.PipeReader
	snaps *snapshots
	name  string
	db    *pebble.DB
	ended chan struct{}
}

// Close ends the reading, wherever it is.
func (c *checkpointStream) Close() error {
	err := c.PipeReader.Close()
	<-c.ended
	err = errors.Join(err, c.db.Close())
	c.snaps.release(c.name)
	return err
}

// counter is a writer that only counts.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
