package clusterstore

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// Each byte of a table counts, also one of a block of values, in which the state keeps histories and bodies: if it is changed, the table
// is corrupt.
func TestVerifyTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		for n := range 2 { // the second start writes the write-ahead logs to tables
			s, err := Open(t.Context(), memConfig(fs))
			require.NoError(t, err)
			openAndReport(t, s, n)
			s.fsm.flush()
			require.NoError(t, s.Close(t.Context()))
		}
		s := openStore(t, memConfig(fs))
		unpaced := func(int) error { return nil }
		for dir, options := range map[string]*pebble.Options{logDir: pebblelog.Options(s.pebbleOptions()), s.state.name: stateOptions(s.pebbleOptions())} {
			table := newestIn(t, fs, "ledger/"+dir, ".sst")
			content, err := readFile(fs, table)
			require.NoError(t, err)
			require.NoError(t, pebblelog.VerifyTable(fs, table, options, unpaced))
			for i := 0; i < len(content); i++ {
				if i < len(content)-256 && i%5 != 0 { // the blocks of data, which are all alike
					continue
				}
				changed := bytes.Clone(content)
				changed[i] ^= 1 << (i % 8)
				require.NoError(t, writeSynced(fs, "changed", changed))
				err := pebblelog.VerifyTable(fs, "changed", options, unpaced)
				require.True(t, isCorruption(err), "byte %d of %d of %s: %v", i, len(content), table, err)
			}
		}
	})
}

// A node finds damage of its disk that no reader asks for: in the log, the state and the snapshot.
func TestVerify_FindsDamage(t *testing.T) {
	for name, dir := range map[string]func(s *Store) string{
		"log":   func(s *Store) string { return "ledger/" + logDir },
		"state": func(s *Store) string { return "ledger/" + s.state.name },
		"snapshot": func(s *Store) string {
			newest, err := s.snaps.List()
			require.NoError(t, err)
			return s.snaps.path(newest[0].ID, checkpointDir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, known := compacted(t)
				closed, err := Open(t.Context(), memConfig(fs)) // a start writes the log's memtables to tables
				require.NoError(t, err)
				require.NoError(t, closed.Close(t.Context()))
				log, cfg := new(bytes.Buffer), memConfig(fs)
				cfg.Limits.VerifyEvery = 10 * time.Minute
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				s := openStore(t, cfg)
				time.Sleep(2 * firstVerify)
				synctest.Wait()
				require.False(t, s.IsDamaged(), "%s", log)

				table := newestIn(t, fs, dir(s), ".sst")
				content, err := readFile(fs, table)
				require.NoError(t, err)
				changed := bytes.Clone(content)
				changed[len(changed)/2] ^= 1
				require.NoError(t, writeSynced(fs, table, changed))
				time.Sleep(cfg.Limits.VerifyEvery)
				synctest.Wait()
				require.True(t, s.IsDamaged())
				require.True(t, s.Stats().Damaged)
				require.Contains(t, log.String(), table)
				require.NoError(t, writeSynced(fs, table, content))
				requireKnown(t, s, known)
			})
		})
	}
}

// A table that a compaction has removed since is no damage; one that the database still has is lost.
func TestVerify_RemovedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _ := compacted(t)
		s := openStore(t, memConfig(fs))
		v := &verifier{storage: &s.storage}
		removed := table{"ledger/" + s.state.name + "/999999.sst", stateOptions(s.pebbleOptions()), s.state.tables}
		require.NoError(t, v.verify(removed))
		require.False(t, s.IsDamaged())
		removed.listed = func() ([]string, error) { return []string{removed.path}, nil }
		require.Error(t, v.verify(removed))
		require.True(t, s.IsDamaged())
	})
}

// A sector that cannot be read is damage, too. A table that cannot be opened now is not.
func TestVerify_SystemErrors(t *testing.T) {
	for errno, damaged := range map[syscall.Errno]bool{syscall.EIO: true, syscall.EMFILE: false} {
		t.Run(errno.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed atomic.Int32
				fs, _ := compacted(t)
				started := time.Now()
				fs = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if time.Since(started) < firstVerify || op.Kind != errorfs.OpOpen || !strings.HasSuffix(op.Path, ".sst") {
						return nil
					}
					failed.Add(1)
					return &os.PathError{Op: "open", Path: op.Path, Err: errno}
				}))
				s := openStore(t, memConfig(fs))
				time.Sleep(2 * firstVerify)
				synctest.Wait()
				require.Positive(t, failed.Load())
				require.Equal(t, damaged, s.IsDamaged())
			})
		})
	}
}
