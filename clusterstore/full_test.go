package clusterstore

import (
	"context"
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
)

// roomless is a file system without room for new tables in a directory, as long as it is full.
func roomless(fs vfs.FS, dir string, why error, full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, dir+"/") && strings.HasSuffix(op.Path, ".sst") {
			return why
		}
		return nil
	}))
}

// A start writes what the write-ahead logs hold into tables. Where there is no room for them it ends, and loses nothing.
func TestStartOnAFullDiskEnds(t *testing.T) {
	for _, dir := range []string{logDir, stateName(1)} {
		for _, why := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
			t.Run(dir+": "+why.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, known := vfs.NewCrashableMem(), new(flew)
					s, err := Open(t.Context(), memConfig(fs))
					require.NoError(t, err)
					for n := range 20 {
						known.add(n, fly(t, s, n))
					}
					s.machine.flush()
					require.NoError(t, s.state.db.LogData(nil, pebble.Sync)) // so that a crash leaves something to be written
					crashed := fs.CrashClone(vfs.CrashCloneCfg{})
					require.NoError(t, s.Close(context.Background()))

					full := new(atomic.Bool)
					full.Store(true)
					start := time.Now()
					_, err = Open(t.Context(), memConfig(roomless(crashed, dir, why, full)))
					require.ErrorIs(t, err, why)
					require.NotErrorIs(t, err, ErrDamaged)
					require.ErrorContains(t, err, "ledger/"+dir)
					require.Less(t, time.Since(start), time.Second)

					full.Store(false)
					time.Sleep(time.Second) // what was begun comes to its end
					requireFlew(t, openStore(t, memConfig(crashed)), known)
				})
			})
		}
	}
}

// A stop and a scrub want tables to be written, too. On a full disk they end, and what they could not do is done later.
func TestStopOnAFullDiskEnds(t *testing.T) {
	for _, dir := range []string{logDir, stateName(1)} {
		t.Run(dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, known, full := vfs.NewMem(), new(flew), new(atomic.Bool)
				s, err := Open(t.Context(), memConfig(roomless(fs, dir, syscall.ENOSPC, full)))
				require.NoError(t, err)
				for n := range 20 {
					known.add(n, fly(t, s, n))
				}
				key := flySecret(t, s, 31)
				propose(t, s, redactOf(key, 1))
				full.Store(true)
				start := time.Now()
				_, err = s.Scrub(t.Context())
				require.ErrorIs(t, err, syscall.ENOSPC)
				err = s.Close(context.Background())
				require.Less(t, time.Since(start), time.Second)
				if dir != logDir { // which a stop has no need to write into tables
					require.ErrorIs(t, err, syscall.ENOSPC)
				}
				next := openStore(t, memConfig(fs))
				_, err = next.Scrub(t.Context())
				require.NoError(t, err)
				requireFlew(t, next, known)
				requireErased(t, next, key, 1)
			})
		})
	}
}
