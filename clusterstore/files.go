package clusterstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// Names in the data directory.
const (
	lockFile      = "LOCK"
	identityFile  = "IDENTITY"
	currentFile   = "CURRENT" // holds the name of the state's directory
	logDir        = "log"
	statePrefix   = "state-"
	snapshotDir   = "snapshots"
	spoolDir      = "spool"
	scrubbedFile  = "SCRUBBED"   // last log entry whose erased bytes have left this disk
	clockStepFile = "CLOCK_STEP" // the ledger's time before a clock step, during stepGrace
	tempPrefix    = "tmp-"
)

// layoutFormat is the version of the data directory as a whole.
const layoutFormat = 1

// identity is the content of IDENTITY: the owner of the directory.
type identity struct {
	Format  int    `json:"format"`
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Started bool   `json:"began,omitempty"` // the log had an entry, so an empty log has lost it
	Sum     uint32 `json:"sum"`             // of the other fields
}

// sum returns the checksum of the fields: a node under a damaged id would wait for ever for those who vote.
func (id identity) sum() uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%d %q %q %t", id.Format, id.Node, id.Cluster, id.Started))
}

// Identify returns the instance id of a ledger directory: the Config.NodeID that its owner must use from now on. It creates
// the id in an empty directory, durably. started: the log of this directory has or had an entry; then a node without an
// entry is not this one. cluster is the cluster's id; "": that of the directory, or a new one.
//
// Identify locks the directory while it works, and unlocks it for Open. Errors are those of Open: ErrLocked, ErrForeign,
// ErrNewer, ErrDamaged. If the process dies in Identify, the directory has its id, or is still empty.
func Identify(dir, cluster string) (instance string, started bool, err error) {
	cfg, err := Config{Dir: dir, ClusterID: cluster}.withDefaults()
	if err != nil {
		return "", false, err
	}
	return identifyDir(&cfg)
}

func identifyDir(cfg *Config) (instance string, started bool, err error) {
	lock, err := lockDir(cfg)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	id, err := identify(cfg)
	if err != nil || id.Started {
		return id.Node, id.Started, err
	}
	started, err = hasEntry(cfg)
	return id.Node, started, err
}

// hasEntry reports whether the log of a directory has an entry. A first start that died may not have noted it in IDENTITY.
func hasEntry(cfg *Config) (bool, error) {
	dir := cfg.FS.PathJoin(cfg.Dir, logDir)
	if _, err := cfg.FS.Stat(dir); oserror.IsNotExist(err) {
		return false, nil
	}
	log, err := pebblelog.Open(dir, pebblelog.Options(&pebble.Options{FS: cfg.FS, Logger: pebbleLog{log: cfg.Logger, kill: cfg.Limits.Kill}}))
	if err != nil {
		return false, storageError("open the raft log", err)
	}
	last, _ := log.LastIndex() // it never returns an error
	return last > 0, log.Close()
}

// identify reads IDENTITY, or creates it in an empty directory. A node that lost its directory must join as another
// node: if it forgot its vote, it could vote twice in one term.
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
	case id.Sum != id.sum():
		return id, fmt.Errorf("%w: %s has another checksum than its content", ErrDamaged, identityFile)
	case cfg.NodeID != "" && cfg.NodeID != id.Node:
		return id, fmt.Errorf("%w: %s belongs to node %s, not %s", ErrForeign, cfg.Dir, id.Node, cfg.NodeID)
	case cfg.ClusterID != "" && cfg.ClusterID != id.Cluster:
		return id, fmt.Errorf("%w: %s belongs to cluster %s, not %s", ErrForeign, cfg.Dir, id.Cluster, cfg.ClusterID)
	}
	return id, nil
}

// newIdentity writes IDENTITY into an empty directory, before any other file. Ledger files without IDENTITY return
// ErrDamaged.
func newIdentity(cfg *Config) (identity, error) {
	id := identity{Format: layoutFormat, Node: cfg.NodeID, Cluster: cfg.ClusterID}
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return id, fmt.Errorf("clusterstore: list %s: %w", cfg.Dir, err)
	}
	for _, name := range names {
		if isLedgerFile(name) {
			return id, fmt.Errorf("%w: %s holds %s of a ledger, but the file %s is missing; a new ledger here would repeat effects that happened", ErrDamaged, cfg.Dir, name, identityFile)
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

// markStarted notes in IDENTITY that the log has an entry, before any caller is answered.
//
// If the process dies before the write, the next start finds the entry in the log and notes it.
func (id *identity) markStarted(cfg *Config) error {
	if id.Started {
		return nil
	}
	marked := *id
	marked.Started = true
	if err := marked.write(cfg); err != nil {
		return err
	}
	*id = marked
	return nil
}

func (id identity) write(cfg *Config) error {
	id.Sum = id.sum()
	b, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("clusterstore: encode %s: %w", identityFile, err)
	}
	return writeFile(cfg.FS, cfg.Dir, identityFile, append(b, '\n'))
}

// isLedgerFile reports whether a name belongs to a ledger and is created only after IDENTITY.
func isLedgerFile(name string) bool {
	switch name {
	case logDir, snapshotDir, spoolDir, currentFile, scrubbedFile, clockStepFile:
		return true
	}
	return strings.HasPrefix(name, statePrefix)
}

// lockDir locks the directory against other processes. ErrLocked: another process holds the lock.
func lockDir(cfg *Config) (io.Closer, error) {
	if err := makeDir(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock(cfg.FS.PathJoin(cfg.Dir, lockFile))
	var unopened *os.PathError // the lock file could not be opened: no other process is involved
	if errors.As(err, &unopened) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrLocked, cfg.Dir, err)
	}
	return lock, nil
}

// makeDir creates a directory durably: it syncs the parent and every parent that it created. It also syncs the parent
// of an existing directory, because the process that created it may have died before its sync.
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

// currentState reads CURRENT and removes the directories that an interrupted restore left. If CURRENT is missing and
// a state other than the first one exists, it removes nothing and returns ErrDamaged: the other state may be
// incomplete.
func currentState(cfg *Config) (string, error) {
	b, err := readFile(cfg.FS, cfg.FS.PathJoin(cfg.Dir, currentFile))
	name, missing := strings.TrimSpace(string(b)), oserror.IsNotExist(err)
	switch {
	case missing:
		name = stateName(1)
	case err != nil:
		return "", fmt.Errorf("clusterstore: read %s: %w", currentFile, err)
	case stateNumber(name) == 0:
		return "", fmt.Errorf("%w: %s does not name a state directory", ErrDamaged, currentFile)
	}
	names, err := cfg.FS.List(cfg.Dir)
	if err != nil {
		return "", fmt.Errorf("clusterstore: list %s: %w", cfg.Dir, err)
	}
	for _, other := range names {
		if !strings.HasPrefix(other, statePrefix) || other == name {
			continue
		}
		if missing {
			return "", fmt.Errorf("%w: the file %s, which names the valid state, is missing, and %s exists: restore that file", ErrDamaged, currentFile, other)
		}
		if err := cfg.FS.RemoveAll(cfg.FS.PathJoin(cfg.Dir, other)); err != nil {
			return "", fmt.Errorf("clusterstore: remove %s: %w", other, err)
		}
	}
	if missing {
		return name, writeFile(cfg.FS, cfg.Dir, currentFile, []byte(name+"\n"))
	}
	return name, nil
}

func stateName(n int) string { return fmt.Sprintf("%s%06d", statePrefix, n) }

// stateNumber returns the number in the name of a state directory, or 0 for any other name.
func stateNumber(name string) int {
	var n int
	if _, err := fmt.Sscanf(name, statePrefix+"%06d", &n); err != nil || stateName(n) != name {
		return 0
	}
	return n
}

// writeFile replaces a file atomically and durably.
//
// If the process dies during writeFile, the file has the old or the new content. After writeFile has returned, it has
// the new content.
func writeFile(fs vfs.FS, dir, name string, content []byte) error {
	return writeFileVia(fs, dir, tempPrefix+name, name, content)
}

// writeFileVia is writeFile with the name of the temporary file, which no other goroutine may use.
func writeFileVia(fs vfs.FS, dir, temp, name string, content []byte) error {
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
	_, err = f.Write(bytes.Clone(content)) // vfs.File.Write may modify its argument
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

// noReuseFS creates a new file where Pebble would overwrite an old write-ahead log. A reused file still holds old
// bytes after the new records, a checkpoint copies the whole file, and erased bytes would survive in it.
type noReuseFS struct{ vfs.FS }

// ReuseForWrite removes the old file and creates the new one, as its contract allows.
func (f noReuseFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
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
