package clusterstore

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// dirSyncFS is a file system on which directory syncs below dir fail after well more of them.
type dirSyncFS struct {
	vfs.FS
	dir  string
	well atomic.Int32
}

const neverFail = 1 << 30

func (f *dirSyncFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || name != f.dir && !strings.HasPrefix(name, f.dir+"/") {
		return dir, err
	}
	return dirSyncDir{dir, f}, nil
}

type dirSyncDir struct {
	vfs.File
	fs *dirSyncFS
}

func (d dirSyncDir) Sync() error {
	if d.fs.well.Add(-1) < 0 {
		return syscall.EIO
	}
	return d.File.Sync()
}

// Pebble panics when a directory sync fails. A failed start returns the system's error, for a new ledger and after a
// crash, and the next start finds all data. The test runs in a process of its own, because goroutines of a failed
// start block until their process ends.
func TestStart_DirSyncFails(t *testing.T) {
	const alone = "FLIGHTD_TEST_REFUSED_NAMES"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	for _, dir := range []string{logDir, stateName(1)} {
		for _, cut := range []bool{false, true} {
			disk, known := vfs.NewCrashableMem(), new(knownFlights)
			if cut {
				disk = crashAfterLoad(t, disk, known)
			}
			refusals := int32(0)
			for ; !tryStart(t, disk, dir, refusals, known); refusals++ {
				require.Less(t, refusals, int32(20))
			}
			require.Greater(t, refusals, int32(1), "%s, cut off: %v", dir, cut)
		}
	}
	os.Exit(0)
}

// crashAfterLoad runs a ledger and returns its disk after a power cut. The next start must flush its write-ahead
// logs.
func crashAfterLoad(t *testing.T, disk *vfs.MemFS, known *knownFlights) *vfs.MemFS {
	t.Helper()
	s, err := Open(t.Context(), memConfig(disk))
	require.NoError(t, err)
	for n := range 20 {
		known.add(n, openAndReport(t, s, n))
	}
	s.fsm.flush()
	require.NoError(t, s.state.db.LogData(nil, pebble.Sync))
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close(context.Background()))
	return crashed
}

// tryStart starts a ledger on a copy of a disk, whose directory syncs fail after the first well ones, and reports whether
// the start succeeded.
func tryStart(t *testing.T, disk *vfs.MemFS, dir string, well int32, known *knownFlights) bool {
	t.Helper()
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	fs := &dirSyncFS{FS: disk, dir: "ledger/" + dir}
	fs.well.Store(well)
	cfg, ended := memConfig(fs), make(chan error, 2)
	cfg.Limits.Kill = func(why error) {
		ended <- why
		select {} // Kill must not return
	}
	var s *Store
	go func() {
		var err error
		if s, err = Open(context.Background(), cfg); err == nil {
			fs.well.Store(neverFail)
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, ErrDamaged)
		requireKnown(t, openStore(t, memConfig(disk.CrashClone(vfs.CrashCloneCfg{}))), known) // after a power cut, which drops unsynced data
		return false
	}
	requireKnown(t, s, known)
	require.NoError(t, s.Close(context.Background()))
	return true
}

// A checkpoint whose directories cannot be synced is removed, and the ledger continues without it.
func TestSnapshot_DirSyncFails(t *testing.T) {
	fs, known := &dirSyncFS{FS: vfs.NewMem(), dir: "ledger/" + snapshotDir}, new(knownFlights)
	fs.well.Store(neverFail)
	cfg := memConfig(fs)
	snapshots := make(map[bool]int) // number of snapshots that succeeded and failed
	cfg.Events.Snapshot = func(_ uint64, _ time.Duration, err error) { snapshots[err == nil]++ }
	s := openStore(t, cfg)
	refusals := 0
	for ; ; refusals++ {
		require.Less(t, refusals, 20)
		known.add(refusals, openAndReport(t, s, refusals))
		fs.well.Store(int32(refusals))
		err := s.takeSnapshot()
		fs.well.Store(neverFail)
		if err == nil {
			break
		}
		require.ErrorContains(t, err, syscall.EIO.Error())
		names, err := fs.List("ledger/" + snapshotDir)
		require.NoError(t, err)
		for _, name := range names {
			require.NotContains(t, name, tempPrefix)
		}
	}
	require.Greater(t, refusals, 3)
	require.Equal(t, map[bool]int{true: 1, false: refusals}, snapshots)
	requireKnown(t, s, known)
}
