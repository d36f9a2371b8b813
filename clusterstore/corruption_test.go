package clusterstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// failOpen returns a file system on which opening a file fails if its path contains all of the parts.
func failOpen(fs vfs.FS, why error, parts ...string) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpOpen {
			return nil
		}
		for _, part := range parts {
			if !strings.Contains(op.Path, part) {
				return nil
			}
		}
		return &os.PathError{Op: "open", Path: op.Path, Err: why}
	}))
}

// An error of the operating system is not reported as damage, because the next start may succeed.
func TestOpen_SystemErrorIsNotCorruption(t *testing.T) {
	for name, c := range map[string]struct {
		parts     []string
		stateGone bool // so that the start needs the snapshot
	}{
		"manifest of the log":     {parts: []string{"ledger/log/", "MANIFEST"}},
		"entries of the log":      {parts: []string{"ledger/log/", ".log"}},
		"manifest of the state":   {parts: []string{"ledger/" + stateName(1), "MANIFEST"}},
		"tables of the state":     {parts: []string{"ledger/" + stateName(1), ".sst"}},
		"a snapshot's small file": {parts: []string{snapshotMetaFile}, stateGone: true},
		"a snapshot's manifest":   {parts: []string{checkpointDir, "MANIFEST"}, stateGone: true},
		"a snapshot's tables":     {parts: []string{checkpointDir, ".sst"}, stateGone: true},
	} {
		for _, why := range []syscall.Errno{syscall.EMFILE, syscall.EACCES, syscall.EIO} {
			t.Run(name+": "+why.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, known := compacted(t)
					if c.stateGone {
						require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))
					}
					_, err := Open(context.Background(), memConfig(failOpen(fs, why, c.parts...)))
					require.ErrorIs(t, err, why)
					require.NotErrorIs(t, err, ErrDamaged)
					requireKnown(t, openStore(t, memConfig(fs)), known)
				})
			})
		}
	}
}

// Lost or changed data is reported as ErrDamaged, whichever error Pebble returns.
func TestOpen_LossIsCorruption(t *testing.T) {
	for name, damage := range map[string]func(*testing.T, vfs.FS, string){
		"a table gone": func(t *testing.T, fs vfs.FS, dir string) {
			require.NoError(t, fs.Remove(newestIn(t, fs, dir, ".sst")))
		},
		"a table cut": func(t *testing.T, fs vfs.FS, dir string) {
			name := newestIn(t, fs, dir, ".sst")
			b, err := readFile(fs, name)
			require.NoError(t, err)
			require.NoError(t, writeSynced(fs, name, b[:len(b)/2]))
		},
		"a table changed": func(t *testing.T, fs vfs.FS, dir string) { corruptFile(t, fs, newestIn(t, fs, dir, ".sst")) },
		"the manifest gone": func(t *testing.T, fs vfs.FS, dir string) {
			require.NoError(t, fs.Remove(manifestIn(t, fs, dir)))
		},
		"the manifest changed": func(t *testing.T, fs vfs.FS, dir string) { corruptFile(t, fs, manifestIn(t, fs, dir)) },
		"the mark of the format gone": func(t *testing.T, fs vfs.FS, dir string) {
			names, err := fs.List(dir)
			require.NoError(t, err)
			for _, name := range names {
				if strings.HasPrefix(name, "marker.format-version") {
					require.NoError(t, fs.Remove(fs.PathJoin(dir, name)))
				}
			}
		},
	} {
		for _, part := range []string{logDir, stateName(1)} {
			t.Run(name+" of "+part, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, _ := compacted(t)
					for range 2 { // a start writes the log's memtables to tables
						s, err := Open(context.Background(), memConfig(fs))
						require.NoError(t, err)
						require.NoError(t, s.Close(context.Background()))
					}
					damage(t, fs, "ledger/"+part)
					s, err := Open(context.Background(), memConfig(fs))
					if err == nil {
						err = s.Close(context.Background())
					}
					require.ErrorIs(t, err, ErrDamaged)
				})
			})
		}
	}
}

func manifestIn(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			newest = max(newest, name)
		}
	}
	require.NotEmpty(t, newest)
	return fs.PathJoin(dir, newest)
}

// A database written by a newer Pebble returns ErrNewer, not ErrDamaged.
func TestOpen_NewerPebbleFormat(t *testing.T) {
	for _, part := range []string{logDir, stateName(1)} {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			newClosedLedger(t, memConfig(fs), 3)
			dir := "ledger/" + part
			names, err := fs.List(dir)
			require.NoError(t, err)
			for _, name := range names {
				if strings.HasPrefix(name, "marker.format-version") {
					require.NoError(t, fs.Rename(fs.PathJoin(dir, name), fs.PathJoin(dir, "marker.format-version.000900.900")))
				}
			}
			_, err = Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrNewer)
			require.NotErrorIs(t, err, ErrDamaged)
			require.False(t, oserror.IsNotExist(err))
		})
	}
}

// A directory with anything but IDENTITY left belonged to a ledger. Open rejects it, because a new ledger would not
// know the used keys.
func TestOpen_PartialDirectoryIsNotANewLedger(t *testing.T) {
	for _, left := range []string{logDir, stateName(1), snapshotDir, spoolDir, currentFile, scrubbedFile} {
		t.Run(left, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, _ := compacted(t)
				require.NoError(t, writeFile(fs, "ledger", scrubbedFile, []byte("7\n")))
				names, err := fs.List("ledger")
				require.NoError(t, err)
				for _, name := range names {
					if name != left {
						require.NoError(t, fs.RemoveAll(fs.PathJoin("ledger", name)))
					}
				}
				for range 2 {
					_, err = Open(context.Background(), memConfig(fs))
					require.ErrorIs(t, err, ErrDamaged)
					require.ErrorContains(t, err, left)
				}
			})
		})
	}
}

// A snapshot that is superseded during a read is kept until the read ends.
func TestSnapshot_IsKeptWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		var retire func() // called during a read
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if f := retire; f != nil && op.Kind == errorfs.OpOpen && strings.Contains(op.Path, checkpointDir) && strings.Contains(op.Path, "MANIFEST") {
				retire = nil
				f()
			}
			return nil
		}))
		s := openStore(t, memConfig(fs))
		for n := range 50 {
			openAndReport(t, s, n)
		}
		s.fsm.flush()
		require.NoError(t, s.state.db.Flush(context.Background())) // so that the checkpoint links tables
		require.NoError(t, s.takeSnapshot())
		list, err := s.snaps.List()
		require.NoError(t, err)
		require.Len(t, list, 1)
		retire = func() { require.NoError(t, s.snaps.removeOld("another")) }
		_, stream, err := s.snaps.Open(list[0].ID)
		require.NoError(t, err)
		require.NoError(t, s.snaps.removeOld("another"))
		rows, _, err := newRowReader(stream)
		for err == nil {
			_, _, err = rows.next()
		}
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, stream.Close())
		require.NoError(t, s.snaps.removeOld("another"))
		left, err := s.snaps.List()
		require.NoError(t, err)
		require.Empty(t, left)

		_, _, err = s.snaps.Open(list[0].ID)
		require.ErrorIs(t, err, ErrDamaged)
		require.Empty(t, s.snaps.pinned, "a failed open leaves no pin")
	})
}

// A damaged file is read again and again by readers and compactions. It is logged once a minute.
func TestCorruptionLog_IsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, cfg := new(bytes.Buffer), memConfig(vfs.NewMem())
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		s := openStore(t, cfg)
		require.False(t, s.IsDamaged())
		for range 2 {
			for range 100 {
				for _, file := range []string{"one.sst", "other.sst"} {
					s.onCorruption(pebble.DataCorruptionInfo{Path: file, Details: errors.New("no checksum")})
				}
			}
			time.Sleep(corruptionLogInterval)
		}
		require.Equal(t, 2, strings.Count(log.String(), "one.sst"))
		require.Equal(t, 2, strings.Count(log.String(), "other.sst"))
		require.True(t, s.IsDamaged(), "a leader hands over")
	})
}

// badTables is a file system on which reads of the state's tables fail, or return changed bytes, while it is bad.
type badTables struct {
	vfs.FS
	changed bool // else the read fails
	bad     atomic.Bool
	reads   atomic.Int32 // while it is bad
}

func (t *badTables) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := t.FS.Open(name, opts...)
	if err != nil || !strings.Contains(name, stateName(1)+"/") || !strings.HasSuffix(name, ".sst") {
		return file, err
	}
	return badTable{file, t}, nil
}

type badTable struct {
	vfs.File
	fs *badTables
}

func (t badTable) ReadAt(b []byte, offset int64) (int, error) {
	if !t.fs.bad.Load() {
		return t.File.ReadAt(b, offset)
	}
	t.fs.reads.Add(1)
	if !t.fs.changed {
		return 0, syscall.EIO
	}
	n, err := t.File.ReadAt(b, offset)
	for i := range b[:n] {
		b[i] ^= 0x5a
	}
	return n, err
}

// A compaction that cannot read an input table is retried with pauses. Pebble alone would retry at once.
func TestUnreadableTablesAreTriedWithPauses(t *testing.T) {
	for name, changed := range map[string]bool{"refused": false, "changed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, log, known := &badTables{FS: vfs.NewMem(), changed: changed}, new(bytes.Buffer), new(knownFlights)
				cfg := memConfig(fs)
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				s := openStore(t, cfg)
				for n := range 5 * 20 {
					known.add(n, openAndReport(t, s, n))
					if n%20 == 19 {
						s.fsm.flush()
						fs.bad.Store(n >= 3*20)
						require.NoError(t, s.state.db.Flush(t.Context()))
					}
				}
				time.Sleep(10 * time.Second)
				require.Positive(t, fs.reads.Load(), "there was nothing to be read")
				require.Less(t, fs.reads.Load(), int32(500))
				require.Less(t, strings.Count(log.String(), "level=ERROR"), 20, log.String())
				fs.bad.Store(false)
				time.Sleep(time.Second)
				requireKnown(t, s, known)
			})
		})
	}
}
