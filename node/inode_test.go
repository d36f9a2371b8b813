package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copied data directory is logged at its first start; a moved one is not.
func TestCopiedDirectoryIsLogged(t *testing.T) {
	warned := func(data string) bool {
		t.Helper()
		var said syncBuffer
		cfg := Dev(data, "127.0.0.1:0")
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		if err := openConfig(t, cfg).stopNode(); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said.String(), "was copied")
	}
	parent := t.TempDir()
	data, moved, copied := filepath.Join(parent, "data"), filepath.Join(parent, "moved"), filepath.Join(parent, "other")
	for _, start := range []string{"first", "second"} {
		require.False(t, warned(data), "the %s start logs a copy", start)
	}
	err := os.Rename(data, moved)
	require.NoError(t, err)
	require.False(t, warned(moved), "a moved directory is logged as a copy")
	err = os.CopyFS(copied, os.DirFS(moved))
	require.NoError(t, err)
	require.True(t, warned(copied), "a copy is not logged")
	require.False(t, warned(copied), "a directory that was not copied since its last start is logged as a copy")
	require.False(t, warned(moved), "a directory that was not copied since its last start is logged as a copy")
}
