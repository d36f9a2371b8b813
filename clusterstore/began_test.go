package clusterstore

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// stripped removes everything from a ledger's directory but the mark of whose it is.
func stripped(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("ledger")
	require.NoError(t, err)
	for _, name := range names {
		if name != identityFile {
			require.NoError(t, fs.RemoveAll(fs.PathJoin("ledger", name)))
		}
	}
}

// neverBegan makes the directory one of a build that did not note that its ledger began.
func neverBegan(t *testing.T, fs vfs.FS) {
	t.Helper()
	b, err := readFile(fs, "ledger/"+identityFile)
	require.NoError(t, err)
	var id identity
	require.NoError(t, json.Unmarshal(b, &id))
	require.True(t, id.Began)
	id.Began = false
	b, err = json.Marshal(id)
	require.NoError(t, err)
	require.NoError(t, writeFile(fs, "ledger", identityFile, b))
}

// A ledger of which only its name is left forgot everything: it is none that has not begun.
func TestANameIsNoNewLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, _ := compacted(t)
		stripped(t, fs)
		for range 2 { // the first start leaves empty databases
			_, err := Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, "has begun")
		}
	})
}

// A ledger of an earlier build is noted to have begun by its first start.
func TestAnOlderLedgerHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, known := compacted(t)
		neverBegan(t, fs)
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		requireFlew(t, s, known)
		require.NoError(t, s.Close(context.Background()))
		stripped(t, fs)
		_, err = Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrDamaged)
	})
}

// Wherever the power goes in the first life of a ledger, the next one goes on: with nothing of what was not synced, or with
// all of it. A file system may keep a part, but not a younger name without an older one beside it: Pebble's marker would
// name a manifest that is not there, and the start refuse what in truth never began.
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
