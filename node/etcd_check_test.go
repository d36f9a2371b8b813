package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
)

// usedEtcdDir returns the directory of a member that wrote some entries and was closed.
func usedEtcdDir(t *testing.T, snapshotEvery uint64) string {
	t.Helper()
	dir := t.TempDir()
	cfg := etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler))
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEvery, 1
	e, err := startEtcd(t.Context(), cfg, clusterstore.Kill)
	require.NoError(t, err)
	for n := range 20 {
		_, err := e.client.Put(t.Context(), fmt.Sprint("k", n), strings.Repeat("v", 500))
		require.NoError(t, err)
	}
	e.close()
	return dir
}

// overwrite writes garbage to a file from an offset on.
func overwrite(t *testing.T, name string, offset int64, length int) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("\xa7\x5c\xf1", length/3)), offset)
	err = errors.Join(err, f.Close())
	require.NoError(t, err)
}

// Each of these kinds of damage made a start hang or panic.
func TestEtcd_DamagedDirectoryIsAnError(t *testing.T) {
	cut := func(size int64) func(*testing.T, string, string) {
		return func(t *testing.T, wal, _ string) {
			err := os.Truncate(wal, size)
			require.NoError(t, err)
		}
	}
	t.Parallel()
	used := usedEtcdDir(t, 10_000)
	for name, test := range map[string]struct {
		damage func(t *testing.T, wal, db string)
		says   string
	}{
		"log empty":           {cut(0), "the log"},
		"log without entries": {cut(200), "the log ends at entry 0, but the database has applied entry"},
		"log cut":             {cut(1500), "but the database has applied entry"},
		"log's head spoiled":  {func(t *testing.T, wal, _ string) { overwrite(t, wal, 0, 300) }, "the log"},
		"log spoiled":         {func(t *testing.T, wal, _ string) { overwrite(t, wal, 2000, 300) }, "the log"},
		"log gone":            {func(t *testing.T, wal, _ string) { _ = os.Remove(wal) }, "the log"},
		"all of the log gone": {func(t *testing.T, wal, _ string) { _ = os.RemoveAll(filepath.Dir(wal)) }, "the log"},
		"database's head":     {func(t *testing.T, _, db string) { overwrite(t, db, 0, 8192) }, "the database"},
		"database's pages":    {func(t *testing.T, _, db string) { overwrite(t, db, 2*4096, 20*4096) }, "the database"},
		"database cut": {func(t *testing.T, _, db string) {
			err := os.Truncate(db, 10_000)
			require.NoError(t, err)
		}, "the database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(used)))
			logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
			require.NoError(t, err, "%v %v", logs, err)
			require.Len(t, logs, 1, "%v %v", logs, err)
			test.damage(t, logs[0], filepath.Join(dir, "member", "snap", "db"))
			e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)), clusterstore.Kill)
			if err == nil {
				e.close()
				t.Fatal("it started")
			}
			var refused *EtcdError
			require.ErrorAs(t, err, &refused, "the error is %v", err)
			require.Equal(t, dir, refused.Dir, "the error is %v", err)
			require.Contains(t, err.Error(), test.says, "the error is %v", err)
		})
	}
}

// An intact directory starts, also after snapshots, and without a database as long as the log is complete.
func TestEtcd_IntactDirectoryStarts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		every  uint64
		change func(db string) error
	}{
		"as it was":        {10_000, func(string) error { return nil }},
		"with snapshots":   {5, func(string) error { return nil }},
		"database gone":    {10_000, os.Remove},
		"database of zero": {10_000, func(db string) error { return os.Truncate(db, 0) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := usedEtcdDir(t, test.every)
			err := test.change(filepath.Join(dir, "member", "snap", "db"))
			require.NoError(t, err)
			e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)), clusterstore.Kill)
			require.NoError(t, err)
			defer e.close()
			got, err := e.client.Get(t.Context(), "k19")
			require.NoError(t, err, "%v, %v", got, err)
			require.Len(t, got.Kvs, 1, "%v, %v", got, err)
		})
	}
}

// Etcd logs the fatal entry in one of its own goroutines, where no caller can recover. The member never closes its
// files, so the test runs it in another process.
func TestEtcd_FatalLogIsReturnedAsError(t *testing.T) {
	t.Parallel()
	const alone = "FLIGHTD_TEST_DIR"
	dir := os.Getenv(alone)
	if dir == "" {
		dir = usedEtcdDir(t, 5) // frequent snapshots, so that the log is compacted
		err := os.Remove(filepath.Join(dir, "member", "snap", "db"))
		require.NoError(t, err)
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v\n%s", err, out)
		return
	}
	e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)), clusterstore.Kill)
	if err == nil {
		e.close()
		t.Fatal("it started")
	}
	var refused *EtcdError
	require.ErrorAs(t, err, &refused, "the error is %v", err)
	require.Contains(t, err.Error(), "failed to recover v3 backend from snapshot: ", "the error is %v", err)
}

// A database locked by another process is reported as locked, not as damaged: on damage an operator moves the directory
// away.
func TestEtcd_LockedByAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := usedEtcdDir(t, 1000)
	db, err := bolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	var locked *LockedError
	_, err = startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)), clusterstore.Kill)
	require.ErrorAs(t, err, &locked, "%v", err)
	require.Equal(t, dir, locked.Dir, "%v", err)
}

// A new node whose etcd has started with the id of the removed member starts as the member that the leader has added.
func TestSetStaleMemberAside(t *testing.T) {
	t.Parallel()
	dir := usedEtcdDir(t, 1000)
	_, member, err := scanWAL(filepath.Join(dir, "member", "wal"))
	require.NoError(t, err)
	require.NotZero(t, member)
	for _, test := range []struct {
		instance string
		added    uint64
		stays    bool
	}{{"i", member, true}, {"before", member + 1, true}, {"i", member + 1, false}} {
		c := &cluster{instance: "i", founding: &peer.Founding{Self: peer.Node{Name: "a"}},
			members: members{Replaced: map[string]replacement{"a": {Instance: test.instance, Etcd: test.added}}}}
		n := &node{cfg: Config{Data: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, cluster: c}
		require.NoError(t, os.CopyFS(n.cfg.etcdDir(), os.DirFS(dir)))
		require.NoError(t, n.checkMember())
		_, err := os.Stat(filepath.Join(n.cfg.etcdDir(), "member"))
		require.Equal(t, test.stays, err == nil, "%+v", test)
	}
}
