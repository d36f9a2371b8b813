package clusterstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
)

// What stands in the data directory.
const (
	lockFile     = "LOCK"
	identityFile = "IDENTITY"
	currentFile  = "CURRENT" // names the directory of the state
	logDir       = "log"
	statePrefix  = "state-"
	snapshotDir  = "snapshots"
	spoolDir     = "spool"
	scrubbedFile = "SCRUBBED" // up to which entry what was erased has left this disk
	jumpedFile   = "JUMPED"   // from where the ledger's time jumped, until that is settled
	tempPrefix   = "tmp-"
)

// layoutFormat is the version of the data directory as a whole.
const layoutFormat = 1

// identity says whose directory it is.
type identity struct {
	Format  int    `json:"format"`
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Began   bool   `json:"began,omitempty"` // its log had an entry: an empty one has lost what was in it
}

// identify reads whose directory it is, or makes it ours when it is empty. A node that lost its directory comes back
// as another node: one that forgot its vote could vote twice.
func identify(cfg *Config) (identity, error) {
	var id identity
	b, err := readFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, identityFile))
	if oserror.IsNotExist(err) {
		return newIdentity(cfg)
	}
	if err != nil {
		return id, fmt.Errorf("clusterstore: read %s: %w", identityFile, err)
	}
	if err := json.Unmarshal(b, &id); err != nil || id.Node == "" || id.Cluster == "" {
		return id, fmt.Errorf("%w: %s cannot be read", ErrDamaged, identityFile)
	}
	switch {
	case id.Format > layoutFormat:
		return id, fmt.Errorf("%w: data directory of format %d, this version reads up to %d", ErrNewer, id.Format, layoutFormat)
	case cfg.NodeID != "" && cfg.NodeID != id.Node:
		return id, fmt.Errorf("%w: %s belongs to node %s, not %s", ErrForeign, cfg.Dir, id.Node, cfg.NodeID)
	case cfg.ClusterID != "" && cfg.ClusterID != id.Cluster:
		return id, fmt.Errorf("%w: %s belongs to cluster %s, not %s", ErrForeign, cfg.Dir, id.Cluster, cfg.ClusterID)
	}
	return id, nil
}

// newIdentity marks an empty directory. It is written before anything else: data without it was tampered with.
func newIdentity(cfg *Config) (identity, error) {
	id := identity{Format: layoutFormat, Node: cfg.NodeID, Cluster: cfg.ClusterID}
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return id, fmt.Errorf("clusterstore: list %s: %w", cfg.Dir, err)
	}
	for _, name := range names {
		if ofLedger(name) {
			return id, fmt.Errorf("%w: %s holds %s of a ledger, but its file %s is gone; as a new ledger it would know of nothing that was done", ErrDamaged, cfg.Dir, name, identityFile)
		}
	}
	if id.Node == "" {
		id.Node = uuid.NewString()
	}
	if id.Cluster == "" {
		id.Cluster = uuid.NewString()
	}
	return id, id.write(cfg)
}

// begin notes that the log has its first entry, before anybody is told of anything in it. If the process dies before that
// the next start finds the entry, and notes it.
func (id identity) begin(cfg *Config) error {
	if id.Began {
		return nil
	}
	id.Began = true
	return id.write(cfg)
}

func (id identity) write(cfg *Config) error {
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("clusterstore: encode %s: %w", identityFile, err)
	}
	return writeFile(cfg.FS, cfg.Dir, identityFile, append(b, '\n'))
}

// ofLedger reports whether a name is one that a ledger puts into its directory, and only after its identity.
func ofLedger(name string) bool {
	switch name {
	case logDir, snapshotDir, spoolDir, currentFile, scrubbedFile, jumpedFile:
		return true
	}
	return strings.HasPrefix(name, statePrefix)
}

// lockDir makes sure that no other process has the directory open.
func lockDir(cfg *Config) (io.Closer, error) {
	if err := makeDir(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock(cfg.FS.PathJoin(cfg.Dir, lockFile))
	var unopened *os.PathError // nobody's lock was met: the file could not even be opened
	if errors.As(err, &unopened) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, cfg.Dir, err)
	}
	return lock, nil
}

// makeDir makes a directory that a crash does not take back: its name, and those of the parents that it needed, are
// synced. They are synced also where it is there already, because the process that made it may have died before.
func makeDir(fs vfs.FS, dir string) error {
	parents := []string{fs.PathDir(dir)}
	for {
		last := parents[len(parents)-1]
		if _, err := fs.Stat(last); err == nil || fs.PathDir(last) == last {
			break
		}
		parents = append(parents, fs.PathDir(last))
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("clusterstore: make %s: %w", dir, err)
	}
	for _, parent := range parents {
		if err := syncDir(fs, parent); err != nil {
			return err
		}
	}
	return nil
}

// currentState reads which directory holds the state, and removes what an interrupted restore left beside it. Where the
// file is gone that is not known of any state but the first one, and nothing is removed.
func currentState(cfg *Config) (string, error) {
	b, err := readFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, currentFile))
	name, gone := strings.TrimSpace(string(b)), oserror.IsNotExist(err)
	switch {
	case gone:
		name = stateName(1)
	case err != nil:
		return "", fmt.Errorf("clusterstore: read %s: %w", currentFile, err)
	case stateNumber(name) == 0:
		return "", fmt.Errorf("%w: %s names no state", ErrDamaged, currentFile)
	}
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("clusterstore: list %s: %w", cfg.Dir, err)
	}
	for _, other := range names {
		if !strings.HasPrefix(other, statePrefix) || other == name {
			continue
		}
		if gone {
			return "", fmt.Errorf("%w: %s is there, but the file %s is gone, which names the state that counts: restore that file", ErrDamaged, other, currentFile)
		}
		if err := cfg.FS.RemoveAll(cfg.FS.PathJoin(cfg.Dir, other)); err != nil {
			return "", fmt.Errorf("clusterstore: remove %s: %w", other, err)
		}
	}
	if gone {
		return name, writeFile(cfg.FS, cfg.Dir, currentFile, []byte(name+"\n"))
	}
	return name, nil
}

func stateName(n int) string { return fmt.Sprintf("%s%06d", statePrefix, n) }

// stateNumber is the number in the name of a state's directory; 0 when it is no such name.
func stateNumber(name string) int {
	var n int
	if _, err := fmt.Sscanf(name, statePrefix+"%06d", &n); err != nil || stateName(n) != name {
		return 0
	}
	return n
}

// writeFile replaces a file as a whole: after a crash it is there with the old content or with the new one, and once
// this returned it has the new one.
func writeFile(fs vfs.FS, dir, name string, content []byte) error {
	return writeFileBy(fs, dir, tempPrefix+name, name, content)
}

// writeFileBy is writeFile by way of a file that nobody else writes to meanwhile.
func writeFileBy(fs vfs.FS, dir, temp, name string, content []byte) error {
	temp = fs.PathJoin(dir, temp)
	if err := writeSynced(fs, temp, content); err != nil {
		return fmt.Errorf("clusterstore: write %s: %w", name, err)
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, name)); err != nil {
		return fmt.Errorf("clusterstore: write %s: %w", name, err)
	}
	return syncDir(fs, dir)
}

func writeSynced(fs vfs.FS, path string, content []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Clone(content)) // a file of vfs may change what it is given
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("clusterstore: sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("clusterstore: sync %s: %w", dir, err)
	}
	return nil
}

// freshFS makes a new file where Pebble would write over an old write-ahead log. Behind what was written since stands
// what the old one held, a checkpoint copies the file as a whole, and so bytes that were erased would live on in it.
type freshFS struct{ vfs.FS }

// ReuseForWrite removes the old file and creates the new one, which its contract allows.
func (f freshFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Remove(oldname); err != nil {
		return nil, err
	}
	return f.Create(newname, category)
}

func readFile(fs vfs.FS, path string) (b []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}
