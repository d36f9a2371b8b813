package clusterstore

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// Names in a backup.
const (
	backupManifestFile = "manifest.json" // written last: a backup without it is incomplete
	backupRowsFile     = "ledger.rows"
)

// backupFormat is the version of a backup.
const backupFormat = 1

// BackupManifest describes a backup: the ledger as of one entry of its log, and the reports in the spool.
type BackupManifest struct {
	Format             int       `json:"format"`
	Version            string    `json:"version"` // of the program that made it
	CreatedAt          time.Time `json:"created_at"`
	Deployment         string    `json:"deployment"`
	FeatureLevel       uint32    `json:"feature_level"`
	Index              uint64    `json:"index"`
	Term               uint64    `json:"term"`
	Cluster            string    `json:"cluster"`
	Node               string    `json:"node"`
	Configuration      []byte    `json:"configuration"` // raft's, with the voters
	ConfigurationIndex uint64    `json:"configuration_index"`
	// Files are the other files of the backup, by their names.
	Files map[string]BackupFile `json:"files"`
	// SHA256 is the digest of the manifest's JSON without this field, in the order of the fields and without spaces.
	SHA256 string `json:"sha256,omitempty"`
}

func (m BackupManifest) digest() (string, error) {
	m.SHA256 = ""
	text, err := json.Marshal(m)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// BackupFile describes a file of a backup.
type BackupFile struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Backup writes a tar archive with the ledger as of now, its spool and the manifest. version is recorded. Callers are served
// meanwhile. It takes a snapshot, so a slow reader of the feed may find that its position was truncated.
func (s *Store) Backup(ctx context.Context, version string, w io.Writer) error {
	out := backupWriter{ctx: ctx, tar: tar.NewWriter(w), manifest: BackupManifest{
		Format: backupFormat, Version: version, CreatedAt: time.Now().UTC().Truncate(time.Second), Cluster: s.id.Cluster, Node: s.id.Node, Files: make(map[string]BackupFile),
	}}
	reports, err := s.spool.files() // before the snapshot: a report that is committed meanwhile is in both
	if err != nil {
		return err
	}
	snapshot, rows, err := s.openNewSnapshot()
	if err != nil {
		return fmt.Errorf("clusterstore: back up: %w", err)
	}
	defer func() { _ = rows.Close() }() // a file that was read
	m := &out.manifest
	m.Index, m.Term = snapshot.Index, snapshot.Term
	m.Configuration, m.ConfigurationIndex = raft.EncodeConfiguration(snapshot.Configuration), snapshot.ConfigurationIndex
	h := s.Header() // read after the snapshot: the deployment never changes, and the level never falls
	m.Deployment, m.FeatureLevel = h.Deployment, h.FeatureLevel()
	if err := out.file(backupRowsFile, snapshot.Size, rows); err != nil {
		return err
	}
	for name, content := range reports {
		if err := out.file(spoolDir+"/"+name, int64(len(content)), bytes.NewReader(content)); err != nil {
			return err
		}
	}
	if m.SHA256, err = m.digest(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := out.file(backupManifestFile, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	return out.tar.Close()
}

// openNewSnapshot takes a snapshot and opens it. If nothing has changed since the newest snapshot, it opens that one.
func (s *Store) openNewSnapshot() (*raft.SnapshotMeta, io.ReadCloser, error) {
	err := s.takeSnapshot()
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil, nil, err
	}
	list, err := s.snaps.List()
	if err != nil {
		return nil, nil, err
	}
	if len(list) == 0 {
		return nil, nil, errors.New("there is no snapshot")
	}
	return s.snaps.Open(list[0].ID)
}

type backupWriter struct {
	ctx      context.Context
	tar      *tar.Writer
	manifest BackupManifest
}

func (b *backupWriter) file(name string, size int64, content io.Reader) error {
	if err := b.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: b.manifest.CreatedAt}); err != nil {
		return fmt.Errorf("clusterstore: back up %s: %w", name, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(b.tar, sum), readerUntil{b.ctx, content}); err != nil {
		return fmt.Errorf("clusterstore: back up %s: %w", name, err)
	}
	b.manifest.Files[name] = BackupFile{Bytes: size, SHA256: hex.EncodeToString(sum.Sum(nil))}
	return nil
}

// readerUntil ends with a context.
type readerUntil struct {
	ctx context.Context
	in  io.Reader
}

func (r readerUntil) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.in.Read(b)
}

// files returns the contents of all spooled reports, by the names of their files.
func (sp *spool) files() (map[string][]byte, error) {
	names, err := sp.cfg.FS.List(sp.dir)
	if err != nil {
		return nil, fmt.Errorf("clusterstore: list %s: %w", sp.dir, err)
	}
	all := make(map[string][]byte)
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			continue
		}
		content, err := readFile(sp.cfg.FS, sp.cfg.FS.PathJoin(sp.dir, name))
		if oserror.IsNotExist(err) {
			continue // committed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("clusterstore: read the spooled report %s: %w", name, err)
		}
		all[name] = content
	}
	return all, nil
}

// ErrBackup is returned for a directory that is no whole backup: a file is missing, or differs from the manifest.
var ErrBackup = errors.New("clusterstore: not a whole backup")

// ReadBackup reads the manifest of the backup in a directory and checks the length and the checksum of each file. It
// returns ErrBackup if a file is missing or differs, and ErrNewer if a later version wrote the backup.
func ReadBackup(dir string) (m BackupManifest, err error) {
	if _, err := os.Stat(dir); err != nil {
		return m, err
	}
	text, err := os.ReadFile(filepath.Join(dir, backupManifestFile))
	if oserror.IsNotExist(err) {
		return m, fmt.Errorf("%w: %s has no %s", ErrBackup, dir, backupManifestFile)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrBackup, backupManifestFile, err)
	}
	if m.Format != backupFormat || m.FeatureLevel > flight.MaxLevel {
		return m, fmt.Errorf("%w: backup of format %d and feature level %d, made by %s", ErrNewer, m.Format, m.FeatureLevel, m.Version)
	}
	if sum, err := m.digest(); err != nil || sum != m.SHA256 {
		return m, errors.Join(err, fmt.Errorf("%w: checksum mismatch in %s", ErrBackup, backupManifestFile))
	}
	if _, has := m.Files[backupRowsFile]; !has {
		return m, fmt.Errorf("%w: %s does not name %s", ErrBackup, backupManifestFile, backupRowsFile)
	}
	for name, want := range m.Files {
		if !filepath.IsLocal(name) {
			return m, fmt.Errorf("%w: %s names %q", ErrBackup, backupManifestFile, name)
		}
		if err := copyBackupFile(io.Discard, dir, name, want); err != nil {
			return m, err
		}
	}
	return m, nil
}

func copyBackupFile(to io.Writer, dir, name string, want BackupFile) error {
	f, err := os.Open(filepath.Join(dir, name))
	if oserror.IsNotExist(err) {
		return fmt.Errorf("%w: %s is missing in the backup", ErrBackup, name)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // a file that was read
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), f)
	if err != nil {
		return fmt.Errorf("clusterstore: read %s of the backup: %w", name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != want.Bytes || got != want.SHA256 {
		return fmt.Errorf("%w: checksum mismatch in %s of the backup", ErrBackup, name)
	}
	return nil
}

// RestoreBackup creates a ledger in cfg.Dir, which must not exist, from the backup in a directory. The ledger has the ids of
// the original ledger and nothing that happened after the backup. Its node is the only voter, even if the backup is of a
// cluster.
//
// If the process dies during RestoreBackup, cfg.Dir is incomplete and must be removed.
func RestoreBackup(cfg Config, from string, m *BackupManifest) (err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	id := identity{Format: layoutFormat, Node: m.Node, Cluster: m.Cluster, Started: true}
	cfg.NodeID, cfg.ClusterID = id.Node, id.Cluster
	if err := makeDir(cfg.FS, cfg.Dir); err != nil {
		return err
	}
	if err := id.write(&cfg); err != nil {
		return err
	}
	st := &storage{cfg: cfg}
	log, err := pebblelog.Open(cfg.FS.PathJoin(cfg.Dir, logDir), pebblelog.Options(st.pebbleOptions()))
	if err != nil {
		return storageError("create the raft log", err)
	}
	// The snapshot is of this term. Raft begins the next one, and this node has voted in none of this log.
	if err := errors.Join(log.SetUint64([]byte("CurrentTerm"), m.Term), log.Close()); err != nil {
		return storageError("create the raft log", err)
	}
	snaps, err := openSnapshots(&cfg, m.Cluster, st.pebbleOptions)
	if err != nil {
		return err
	}
	alone := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id.Node), Address: raft.ServerAddress(id.Node)}}})
	sink, err := snaps.begin(snapshotMeta{Index: m.Index, Term: m.Term, Configuration: alone, ConfigurationIndex: m.ConfigurationIndex})
	if err != nil {
		return err
	}
	if err := copyBackupRows(sink, from, alone); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	if err := makeDir(cfg.FS, cfg.FS.PathJoin(cfg.Dir, spoolDir)); err != nil {
		return err
	}
	for name, want := range m.Files {
		report, isReport := strings.CutPrefix(name, spoolDir+"/")
		if !isReport {
			continue
		}
		var content bytes.Buffer
		if err := copyBackupFile(&content, from, name, want); err != nil {
			return err
		}
		if err := writeFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, spoolDir), report, content.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// copyBackupRows copies the rows of a backup that ReadBackup has checked, and replaces the raft configuration in the meta row, because
// the next start may take a snapshot of that row.
func copyBackupRows(to io.Writer, dir string, configuration []byte) error {
	f, err := os.Open(filepath.Join(dir, backupRowsFile))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // a file that was read
	in, head, err := newRowReader(f)
	if err != nil {
		return err
	}
	out, err := newRowWriter(to, head)
	if err != nil {
		return err
	}
	for {
		key, value, err := in.next()
		if errors.Is(err, io.EOF) {
			return out.end()
		}
		if err == nil && key[0] == metaRow {
			var m meta
			if err = decodeMeta(value, flight.MaxLevel, &m); err == nil {
				m.Config = configuration
				value, err = encodeMeta(&m)
			}
		}
		if err == nil {
			err = out.row(key, value)
		}
		if err != nil {
			return err
		}
	}
}
