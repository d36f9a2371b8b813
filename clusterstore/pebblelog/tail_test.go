package pebblelog_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// The end of a write-ahead log says whether it was closed, and how much of it cannot be read.
func TestInspectTail(t *testing.T) {
	fs := vfs.NewCrashableMem()
	log, err := pebblelog.Open("log", options(fs))
	require.NoError(t, err)
	for i := range uint64(20) {
		require.NoError(t, log.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: fmt.Appendf(nil, "entry %d of some length", i)}))
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{})
	inspect := func(fs vfs.FS, dir string) pebblelog.Tail {
		tail, err := pebblelog.InspectTail(fs, dir)
		require.NoError(t, err)
		return tail
	}
	require.Equal(t, pebblelog.Tail{}, inspect(killed, "log"))
	flipLastByte(t, killed, "log")
	require.Greater(t, inspect(killed, "log").Discarded, int64(20))
	require.NoError(t, log.Close())
	require.Equal(t, pebblelog.Tail{Closed: true}, inspect(fs, "log"))
	require.Equal(t, pebblelog.Tail{Closed: true}, inspect(fs, "missing"))
	_, err = pebblelog.InspectTail(errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpList {
			return errorfs.ErrInjected
		}
		return nil
	})), "log")
	require.ErrorIs(t, err, errorfs.ErrInjected, "a directory that cannot be listed is not a closed log")
}

// flipLastByte changes the last written byte of the newest write-ahead log.
func flipLastByte(t *testing.T, fs *vfs.MemFS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			newest = max(newest, fs.PathJoin(dir, name))
		}
	}
	f, err := fs.Open(newest)
	require.NoError(t, err)
	content, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	content[len(bytes.TrimRight(content, "\x00"))-1] ^= 1
	out, err := fs.Create(newest, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = out.Write(content)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
