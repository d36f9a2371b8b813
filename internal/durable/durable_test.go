package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite_LeavesOneWholeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	check := func(want string, mode fs.FileMode) {
		t.Helper()
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode())
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 1, "a file is left beside it")
	}
	require.NoError(t, Create(path, []byte("a"), 0o644))
	check("a", 0o644)
	require.ErrorIs(t, Create(path, []byte("b"), 0o600), fs.ErrExist)
	check("a", 0o644)
	require.NoError(t, Replace(path, []byte("c"), 0o600))
	check("c", 0o600)
	f, err := Begin(path)
	require.NoError(t, err)
	f.Discard()
	check("c", 0o600)
	f, err = Begin(path)
	require.NoError(t, err)
	require.NoError(t, f.Replace([]byte("d")))
	f.Discard()
	check("d", 0o600)
}

func TestWrite_ErrorLeavesTheFileBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "directory")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, Replace(path, []byte("a"), 0o600))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "a file is left beside it")
	require.Error(t, SyncDir(filepath.Join(path, "none")))
}
