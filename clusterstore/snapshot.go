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

// checkpoint is a state as of one index: hard links to the files of the database, taken on the machine's goroutine,
// so that it holds exactly what was applied then. It is nobody's yet: Persist gives it to a snapshot.
type checkpoint struct {
	snaps *snapshots
	dir   string
	meta  meta
	start time.Time
}

// Snapshot takes a checkpoint. Everything applied so far is durable when it returns, in the state as well as in the
// checkpoint: raft may drop the log behind it.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.flush()
	c := &checkpoint{snaps: m.snaps, dir: m.snaps.temp(), meta: m.meta, start: time.Now()}
	if err := m.state.db.Checkpoint(c.dir, pebble.WithFlushedWAL()); err != nil {
		c.Release()
		return nil, fmt.Errorf("clusterstore: checkpoint at entry %d: %w", m.meta.Applied, err)
	}
	return c, nil
}

// Persist makes the checkpoint part of the snapshot that raft has begun.
//
// If the process dies before the sink is closed, the old snapshot and the whole log are there. After it the new
// snapshot is, and the log is dropped behind it by raft alone.
func (c *checkpoint) Persist(sink raft.SnapshotSink) error {
	ours, ok := sink.(*snapshotSink)
	if !ok {
		return fmt.Errorf("clusterstore: a checkpoint cannot go into a %T", sink)
	}
	if c.meta.Applied < ours.meta.Index {
		return fmt.Errorf("clusterstore: the checkpoint is of entry %d, the snapshot would be of %d", c.meta.Applied, ours.meta.Index)
	}
	return ours.adopt(c.dir)
}

// Release removes a checkpoint that became part of nothing.
func (c *checkpoint) Release() {
	if err := c.snaps.cfg.FS.RemoveAll(c.dir); err != nil {
		c.snaps.cfg.Logger.Warn("clusterstore: remove a checkpoint", "dir", c.dir, "error", err)
	}
}

// Restore replaces the state by the rows of a snapshot. The new state is built beside the old one and takes its place
// when it is whole and durable.
//
// If the process dies before CURRENT is renamed, the old state is there and raft restores again. After it the new one
// is; what is left of the other is removed at the next start.
func (m *machine) Restore(from io.ReadCloser) (err error) {
	defer func() {
		if err != nil {
			m.snaps.fail(err)
		}
	}()
	m.flush() // so that nobody writes into the old state any more
	name := stateName(stateNumber(m.state.name) + 1)
	db, err := m.build(name, from)
	if err != nil {
		return err
	}
	found, err := (&state{cfg: m.cfg, db: db, name: name}).load()
	if err != nil { // what came is not whole: this node stays what it was
		return errors.Join(err, db.Close())
	}
	if err := writeFile(m.cfg.FS, m.cfg.Dir, currentFile, []byte(name+"\n")); err != nil {
		return errors.Join(err, db.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll.Store(found.roll)        // first: readers must not be denied what the new state holds
	err = m.state.replace(db, name) // it is replaced in any case
	m.cache.clear()
	m.takeOver(found)
	m.waiters.wakeAll()
	return err
}

// build makes a state of the rows that come.
func (m *machine) build(name string, from io.Reader) (_ *pebblelog.DB, err error) {
	rows, head, err := newRowReader(from)
	if err != nil {
		return nil, err
	}
	if head.Cluster != m.meta.Cluster && m.meta.Cluster != "" {
		return nil, fmt.Errorf("%w: the snapshot is of cluster %s, this is %s", ErrForeign, head.Cluster, m.meta.Cluster)
	}
	dir := m.cfg.FS.PathJoin(m.cfg.Dir, name)
	if err := m.cfg.FS.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clusterstore: restore: %w", err)
	}
	db, err := pebblelog.OpenDB(dir, m.state.options())
	if err != nil {
		return nil, fmt.Errorf("clusterstore: restore: %w", err)
	}
	if err := m.copyRows(db, rows); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := db.Flush(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("clusterstore: restore: %w", err), db.Close())
	}
	return db, nil
}

// restoreBatch is how many bytes of rows are written at once.
const restoreBatch = 1 << 20

func (m *machine) copyRows(db *pebblelog.DB, rows *rowReader) error {
	p := pourer{db: db, batch: db.NewBatch(), room: int(m.cfg.Memory.MemTable)}
	defer func() { _ = p.batch.Close() }() // frees memory; commits have their own errors
	for {
		key, value, err := rows.next()
		if errors.Is(err, io.EOF) {
			return p.commit()
		}
		if err != nil {
			return err
		}
		if key[0] == metaRow {
			if value, err = m.adoptMeta(value); err != nil {
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

// pourer writes many rows into a database that nobody else writes to.
type pourer struct {
	db        *pebblelog.DB
	batch     *pebble.Batch
	room      int // bytes of one table of recent writes
	unwritten int // bytes since the last one was written
}

// commit writes what has gathered. A commit that finds no room in memory waits until there is some, on a full disk for ever; a
// flush ends where the system refuses it. So the room never becomes scarce.
func (p *pourer) commit() error {
	p.unwritten += p.batch.Len()
	if err := p.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	p.batch.Reset()
	if p.unwritten < p.room {
		return nil
	}
	p.unwritten = 0
	if err := p.db.Flush(context.Background()); err != nil {
		return fmt.Errorf("clusterstore: restore: %w", err)
	}
	return nil
}

// adoptMeta makes another node's state this node's.
func (m *machine) adoptMeta(value []byte) ([]byte, error) {
	var theirs meta
	if err := decodeMeta(value, &theirs); err != nil {
		return nil, err
	}
	theirs.Node = m.cfg.NodeID
	return encodeMeta(&theirs)
}

// replace puts a new database in the place of the old one, which nobody reads any more when this returns.
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
