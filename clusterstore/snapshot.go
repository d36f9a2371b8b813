package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// checkpoint is a copy of the state as of one index: hard links to the files of the database, created on the fsm's
// goroutine, so that it holds exactly the entries applied by then. Persist moves it into a snapshot.
type checkpoint struct {
	snaps *snapshots
	dir   string
	meta  meta
	start time.Time
}

// Snapshot creates a checkpoint. When it returns, every applied entry is durable both in the state and in the
// checkpoint, so raft may delete the log up to it.
func (fs *fsm) Snapshot() (raft.FSMSnapshot, error) {
	fs.flush()
	c := &checkpoint{snaps: fs.snaps, dir: fs.snaps.tempPath(), meta: fs.meta, start: time.Now()}
	if err := fs.state.db.Checkpoint(c.dir, pebble.WithFlushedWAL()); err != nil {
		c.Release()
		return nil, fmt.Errorf("clusterstore: checkpoint at entry %d: %w", fs.meta.Applied, err)
	}
	return c, nil
}

// Persist moves the checkpoint into the snapshot that raft has created.
//
// If the process dies before the sink is closed, the old snapshot and the whole log exist. After it, the new snapshot
// exists; raft then deletes the log up to it.
func (c *checkpoint) Persist(sink raft.SnapshotSink) error {
	snapshot, ok := sink.(*snapshotSink)
	if !ok {
		return fmt.Errorf("clusterstore: a checkpoint cannot go into a %T", sink)
	}
	if c.meta.Applied < snapshot.meta.Index {
		return fmt.Errorf("clusterstore: the checkpoint ends at entry %d, the snapshot at entry %d", c.meta.Applied, snapshot.meta.Index)
	}
	return snapshot.addCheckpoint(c.dir)
}

// Release removes a checkpoint that was not moved into a snapshot.
func (c *checkpoint) Release() {
	if err := c.snaps.cfg.FS.RemoveAll(c.dir); err != nil {
		c.snaps.cfg.Logger.Warn("clusterstore: remove a checkpoint", "dir", c.dir, "error", err)
	}
}

// Restore replaces the state with the rows of a snapshot. It builds the new state in another directory, and switches
// to it when it is complete and durable.
//
// If the process dies before CURRENT is renamed, the old state is valid, and raft restores again. After it, the new
// state is valid, and the next start removes the old one.
func (fs *fsm) Restore(from io.ReadCloser) (err error) {
	defer func() {
		if err != nil {
			fs.snaps.setReadError(err)
		}
	}()
	fs.flush() // the old state must receive no write after this
	name := stateName(stateNumber(fs.state.name) + 1)
	db, err := fs.buildState(name, from)
	if err != nil {
		return err
	}
	found, err := (&state{cfg: fs.cfg, db: db, name: name}).load()
	if err != nil { // the snapshot is incomplete: keep the old state
		return errors.Join(err, db.Close())
	}
	if err := writeFile(fs.cfg.FS, fs.cfg.Dir, currentFile, []byte(name+"\n")); err != nil {
		return errors.Join(err, db.Close())
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.filter.Store(found.filter)    // first: the old filter would hide flights of the new state
	err = fs.state.replace(db, name) // the state is replaced even if this fails
	fs.cache.clear()
	fs.load(found)
	fs.waiters.wakeAll()
	return err
}

// buildState creates a database from a stream of rows and flushes it. ErrForeign: the rows are of another cluster.
func (fs *fsm) buildState(name string, from io.Reader) (_ *pebblelog.DB, err error) {
	rows, head, err := newRowReader(from)
	if err != nil {
		return nil, err
	}
	if head.Cluster != fs.meta.Cluster && fs.meta.Cluster != "" {
		return nil, fmt.Errorf("%w: the snapshot is of cluster %s, this is %s", ErrForeign, head.Cluster, fs.meta.Cluster)
	}
	dir := fs.cfg.FS.PathJoin(fs.cfg.Dir, name)
	if err := fs.cfg.FS.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clusterstore: restore: %w", err)
	}
	db, err := pebblelog.OpenDB(dir, fs.state.options())
	if err != nil {
		return nil, fmt.Errorf("clusterstore: restore: %w", err)
	}
	if err := fs.restoreRows(db, rows); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := db.Flush(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("clusterstore: restore: %w", err), db.Close())
	}
	return db, nil
}

// restoreBatch is how many bytes of rows are committed at a time.
const restoreBatch = 1 << 20

func (fs *fsm) restoreRows(db *pebblelog.DB, rows *rowReader) error {
	p := rowRestorer{db: db, batch: db.NewBatch(), flushBytes: int(fs.cfg.Memory.MemTable)}
	defer func() { _ = p.batch.Close() }() // frees memory; commits report their own errors
	for {
		key, value, err := rows.next()
		if errors.Is(err, io.EOF) {
			return p.commit()
		}
		if err != nil {
			return err
		}
		if key[0] == metaRow {
			if value, err = fs.adoptMeta(value); err != nil {
				return err
			}
		}
		if err := p.batch.Set(key, value, nil); err != nil {
			return err
		}
		if p.batch.Len() < restoreBatch {
			continue
		}
		if err := p.commit(); err != nil {
			return err
		}
	}
}

// rowRestorer writes many rows into a database without other writers.
type rowRestorer struct {
	db         *pebblelog.DB
	batch      *pebble.Batch
	flushBytes int // size of a memtable
	unflushed  int // bytes committed since the last flush
}

// commit commits the collected rows, and flushes after each memtable's worth of bytes. Without these flushes a commit
// could wait for memory, on a full disk for ever; a flush returns the system's error.
func (r *rowRestorer) commit() error {
	r.unflushed += r.batch.Len()
	if err := r.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	r.batch.Reset()
	if r.unflushed < r.flushBytes {
		return nil
	}
	r.unflushed = 0
	if err := r.db.Flush(context.Background()); err != nil {
		return fmt.Errorf("clusterstore: restore: %w", err)
	}
	return nil
}

// adoptMeta puts this node's id into another node's meta row.
func (fs *fsm) adoptMeta(value []byte) ([]byte, error) {
	var m meta
	if err := decodeMeta(value, fs.cfg.Limits.levels.Max, &m); err != nil {
		return nil, err
	}
	m.Node = fs.cfg.NodeID
	return encodeMeta(&m)
}

// replace switches to a new database, then closes and removes the old one. No reader uses the old one when replace
// returns.
func (s *state) replace(db *pebblelog.DB, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, oldName := s.db, s.name
	s.db, s.name = db, name
	if err := old.Close(); err != nil {
		return fmt.Errorf("clusterstore: close the replaced state: %w", err)
	}
	if err := s.cfg.FS.RemoveAll(s.cfg.FS.PathJoin(s.cfg.Dir, oldName)); err != nil {
		return fmt.Errorf("clusterstore: remove the replaced state: %w", err)
	}
	return nil
}
