package clusterstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestADirectoryThatCannotBeLockedIsNotSomebodyElses: only who meets another's lock is told of another process.
func TestADirectoryThatCannotBeLockedIsNotSomebodyElses(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, lockFile), 0o700))
	_, err := Open(t.Context(), Config{Dir: dir})
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrLocked)
}
