package clusterstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
)

// A snapshot is a directory with a meta file and either a checkpoint of this node's state, or the stream of rows that
// another node sent. The meta file is written last, and the directory is renamed to its final name after that: a
// directory with its final name is complete. Only the newest snapshot is kept.
const (
	snapshotMetaFile = "meta.json"
	checkpointDir    = "checkpoint"
	rowsFile         = "rows"
)

const snapshotFormat = 1

// snapshotMeta is the content of the meta file.
type snapshotMeta struct {
	Format             int    `json:"format"`
	Cluster            string `json:"cluster"`
	Index              uint64 `json:"index"`
	Term               uint64 `json:"term"`
	Configuration      []byte `json:"configuration"`
	ConfigurationIndex uint64 `json:"configuration_index"`
	Sum                uint32 `json:"sum,omitempty"` // CRC-32C of the other fields; 0: none
}

// encode returns the meta file with its checksum. Raft continues after the index in this file: with a wrong index it
// would skip the entries up to the index of the checkpoint.
func (m snapshotMeta) encode() ([]byte, error) {
	m.Sum = 0
	b, err := json.Marshal(&m)
	if err != nil {
		return nil, err
	}
	m.Sum = crc32.Checksum(b, castagnoli())
	return json.Marshal(&m)
}

// checksumOK reports whether b is the meta file as it was written.
func (m snapshotMeta) checksumOK(b []byte) bool {
	encoded, err := m.encode()
	return m.Sum == 0 || err == nil && bytes.Equal(encoded, b)
}

func (m *snapshotMeta) raft(id string) *raft.SnapshotMeta {
	return &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: id, Index: m.Index, Term: m.Term,
		Configuration: raft.DecodeConfiguration(m.Configuration), ConfigurationIndex: m.ConfigurationIndex}
}

// snapshots implements raft.SnapshotStore.
type snapshots struct {
	cfg     *Config
	cluster string
	options func() *pebble.Options
	dir     string
	// admit is asked before a snapshot that another node sends is stored, and onReceived is called when it is durable,
	// before raft acknowledges it.
	admit, onReceived func(index uint64) error

	mu      sync.Mutex // guards the fields below
	serial  int
	pinned  map[string]int // number of readers by snapshot; a pinned one is removed after the next snapshot
	readErr error          // why a snapshot could not be read; raft does not pass this error on

	openMu sync.Mutex // guards open; not held together with mu
	open   map[string]*openCheckpoint
}

func openSnapshots(cfg *Config, cluster string, options func() *pebble.Options) (*snapshots, error) {
	s := &snapshots{cfg: cfg, cluster: cluster, options: options, dir: cfg.FS.PathJoin(cfg.Dir, snapshotDir), pinned: make(map[string]int), open: make(map[string]*openCheckpoint)}
	if err := makeDir(cfg.FS, s.dir); err != nil {
		return nil, err
	}
	names, err := cfg.FS.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("clusterstore: list %s: %w", s.dir, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			if err := cfg.FS.RemoveAll(s.path(name)); err != nil {
				return nil, fmt.Errorf("clusterstore: remove %s: %w", name, err)
			}
		}
	}
	return s, nil
}

func (s *snapshots) path(parts ...string) string {
	return s.cfg.FS.PathJoin(append([]string{s.dir}, parts...)...)
}

// tempPath returns a new path for an incomplete snapshot or checkpoint.
func (s *snapshots) tempPath() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	return s.path(fmt.Sprintf("%s%d", tempPrefix, s.serial))
}

// Create starts a snapshot.
func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return s.begin(snapshotMeta{Index: index, Term: term, Configuration: raft.EncodeConfiguration(c), ConfigurationIndex: configIndex})
}

func (s *snapshots) begin(m snapshotMeta) (*snapshotSink, error) {
	m.Format, m.Cluster = snapshotFormat, s.cluster
	sink := &snapshotSink{snaps: s, temp: s.tempPath(), meta: m, start: time.Now(),
		name: fmt.Sprintf("%020d-%020d-%x", m.Index, m.Term, time.Now().UnixNano())}
	if err := s.cfg.FS.MkdirAll(sink.temp, 0o700); err != nil {
		return nil, fmt.Errorf("clusterstore: begin a snapshot: %w", err)
	}
	return sink, nil
}

// List returns the snapshots, newest first. It logs and omits those that cannot be read.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.cfg.FS.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("clusterstore: list %s: %w", s.dir, err)
	}
	slices.Sort(names)
	slices.Reverse(names)
	s.setReadError(nil)
	var all []*raft.SnapshotMeta
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			continue
		}
		m, err := s.readMeta(name)
		if errors.Is(err, ErrNewer) || errors.Is(err, ErrForeign) {
			return nil, err
		}
		if err != nil {
			s.cfg.Logger.Error("clusterstore: cannot read a snapshot", "snapshot", name, "error", err)
			if !errors.Is(err, ErrDamaged) {
				s.setReadError(err)
			}
			continue
		}
		all = append(all, m.raft(name))
	}
	return all, nil
}

func (s *snapshots) readMeta(name string) (m snapshotMeta, err error) {
	b, err := readFile(s.cfg.FS, s.path(name, snapshotMetaFile))
	if err != nil {
		return m, storageError("read snapshot "+name, err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: snapshot %s: %w", ErrDamaged, name, err)
	}
	if m.Format > snapshotFormat {
		return m, fmt.Errorf("%w: snapshot %s of format %d", ErrNewer, name, m.Format)
	}
	if !m.checksumOK(b) {
		return m, fmt.Errorf("%w: checksum mismatch in %s of snapshot %s", ErrDamaged, snapshotMetaFile, name)
	}
	if m.Cluster != s.cluster {
		return m, fmt.Errorf("%w: snapshot %s belongs to cluster %s, not %s", ErrForeign, name, m.Cluster, s.cluster)
	}
	return m, nil
}

// isLocal reports whether a snapshot was taken on this node, not received from another one.
func (s *snapshots) isLocal(name string) bool {
	_, err := s.cfg.FS.Stat(s.path(name, checkpointDir))
	return err == nil
}

// setReadError records why a snapshot cannot be read.
func (s *snapshots) setReadError(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readErr = why
}

// readError returns why a snapshot could not be read since the last List. List records only errors that the next
// start may not see again.
func (s *snapshots) readError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readErr
}

// Open returns a snapshot as a stream of rows, with its length. The snapshot is kept until the stream is closed.
func (s *snapshots) Open(name string) (_ *raft.SnapshotMeta, _ io.ReadCloser, err error) {
	s.pin(name) // before the first access
	defer func() {
		if err != nil {
			s.setReadError(err)
			s.unpin(name)
		}
	}()
	m, err := s.readMeta(name)
	if err != nil {
		return nil, nil, err
	}
	out := m.raft(name)
	if info, err := s.cfg.FS.Stat(s.path(name, rowsFile)); err == nil {
		f, err := s.cfg.FS.Open(s.path(name, rowsFile))
		if err != nil {
			return nil, nil, fmt.Errorf("clusterstore: open snapshot %s: %w", name, err)
		}
		out.Size = info.Size()
		s.unpin(name) // an open file outlives its name
		return out, f, nil
	}
	r, size, err := s.streamCheckpoint(name)
	if err != nil {
		return nil, nil, err
	}
	out.Size = size
	return out, r, nil
}

// pin prevents the removal of a snapshot until it is unpinned.
func (s *snapshots) pin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned[name]++
}

func (s *snapshots) unpin(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned[name]--; s.pinned[name] == 0 {
		delete(s.pinned, name)
	}
}

// removeOld durably removes all snapshots except the named and the pinned ones: they may hold bytes that have been
// erased since.
func (s *snapshots) removeOld(keep string) error {
	names, err := s.cfg.FS.List(s.dir)
	if err != nil {
		return fmt.Errorf("clusterstore: list %s: %w", s.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := false
	for _, name := range names {
		if name == keep || strings.HasPrefix(name, tempPrefix) || s.pinned[name] > 0 {
			continue
		}
		if err := s.cfg.FS.RemoveAll(s.path(name)); err != nil {
			return fmt.Errorf("clusterstore: remove snapshot %s: %w", name, err)
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return syncDir(s.cfg.FS, s.dir)
}

// snapshotSink is a snapshot that is being written.
type snapshotSink struct {
	snaps  *snapshots
	temp   string
	name   string
	meta   snapshotMeta
	start  time.Time
	rows   vfs.File // rows received from another node
	closed bool
}

func (s *snapshotSink) ID() string { return s.name }

// addCheckpoint moves a checkpoint of this node's state into the snapshot.
func (s *snapshotSink) addCheckpoint(dir string) error {
	fs := s.snaps.cfg.FS
	if err := fs.Rename(dir, fs.PathJoin(s.temp, checkpointDir)); err != nil {
		return fmt.Errorf("clusterstore: move a checkpoint: %w", err)
	}
	return nil
}

// Write appends a part of the stream that another node sends.
func (s *snapshotSink) Write(b []byte) (int, error) {
	if s.rows == nil {
		if admit := s.snaps.admit; admit != nil {
			if err := admit(s.meta.Index); err != nil {
				return 0, err
			}
		}
		f, err := s.snaps.cfg.FS.Create(s.snaps.cfg.FS.PathJoin(s.temp, rowsFile), vfs.WriteCategoryUnspecified)
		if err != nil {
			return 0, fmt.Errorf("clusterstore: receive a snapshot: %w", err)
		}
		s.rows = f
	}
	return s.rows.Write(b)
}

// Close makes the snapshot durable and the newest one. On an error it removes the snapshot: raft ignores it, and its
// hard links would keep tables on a full disk that the state no longer needs.
//
// If the process dies before the rename to the final name, the next start removes the temporary directory, and the
// old snapshot is valid.
func (s *snapshotSink) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.publish()
	if err == nil && s.rows != nil && s.snaps.onReceived != nil {
		err = s.snaps.onReceived(s.meta.Index)
	}
	if err != nil {
		err = errors.Join(err, s.snaps.cfg.FS.RemoveAll(s.temp)) // without effect after the rename
	}
	if f := s.snaps.cfg.Events.Snapshot; f != nil && (err == nil || s.rows != nil) { // takeSnapshot reports failures of local ones
		f(s.meta.Index, time.Since(s.start), err)
	}
	return err
}

func (s *snapshotSink) publish() error {
	fs := s.snaps.cfg.FS
	if s.rows != nil {
		if err := errors.Join(s.rows.Sync(), s.rows.Close()); err != nil {
			return fmt.Errorf("clusterstore: finish a snapshot: %w", err)
		}
	}
	b, err := s.meta.encode()
	if err != nil {
		return fmt.Errorf("clusterstore: finish a snapshot: %w", err)
	}
	if err := writeFile(fs, s.temp, snapshotMetaFile, b); err != nil {
		return err
	}
	if err := fs.Rename(s.temp, s.snaps.path(s.name)); err != nil {
		return fmt.Errorf("clusterstore: finish a snapshot: %w", err)
	}
	if err := syncDir(fs, s.snaps.dir); err != nil {
		return err
	}
	return s.snaps.removeOld(s.name)
}

// Cancel removes the snapshot. Raft also calls it after a Close that failed.
func (s *snapshotSink) Cancel() error {
	s.closed = true
	var err error
	if s.rows != nil {
		err = s.rows.Close()
	}
	return errors.Join(err, s.snaps.cfg.FS.RemoveAll(s.temp))
}
