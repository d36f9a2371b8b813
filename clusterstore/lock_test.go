package clusterstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Open returns ErrLocked only when another process holds the lock, not when the lock file cannot be opened.
func TestOpen_LockFileCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, lockFile), 0o700))
	_, err := Open(t.Context(), Config{Dir: dir})
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrLocked)
}
