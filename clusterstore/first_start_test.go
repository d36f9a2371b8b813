package clusterstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// stripDirectory removes everything but IDENTITY from a ledger's directory.
func stripDirectory(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("ledger")
	require.NoError(t, err)
	for _, name := range names {
		if name != identityFile {
			require.NoError(t, fs.RemoveAll(fs.PathJoin("ledger", name)))
		}
	}
}

// A directory with nothing but a marked IDENTITY has lost its ledger and is not a new one.
func TestOpen_IdentityAloneIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _ := compacted(t)
		stripDirectory(t, fs)
		for range 2 { // the first start leaves empty databases
			_, err := Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, "had entries")
		}
	})
}

// A power cut at any write of the first start leaves a directory that the next start accepts, with none or all of the
// unsynced data. A partial loss could keep a newer directory entry without an older one: Pebble's marker would then
// name a missing manifest, and the start would reject the directory.
func TestFirstStart_CrashAtEveryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, all := vfs.NewCrashableMem(), vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
		var mu sync.Mutex
		var crashes []*vfs.MemFS
		s, err := Open(t.Context(), memConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{}), mem.CrashClone(all))
			}
			return nil
		}))))
		require.NoError(t, err)
		require.NoError(t, s.Close(context.Background()))
		require.NotEmpty(t, crashes)
		for i, crashed := range crashes {
			for range 2 {
				s, err := Open(t.Context(), memConfig(crashed))
				require.NoError(t, err, "crash %d of %d", i, len(crashes))
				require.NotEmpty(t, s.Header().Deployment)
				require.NoError(t, s.Close(context.Background()))
			}
		}
	})
}
