package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopiedDirectoryIsRejected: a copy is rejected at each start, in another place and put back over the original; the
// original and a moved directory are accepted.
func TestCopiedDirectoryIsRejected(t *testing.T) {
	parent := t.TempDir()
	data, moved, copied := filepath.Join(parent, "data"), filepath.Join(parent, "moved"), filepath.Join(parent, "copied")
	start := func(dir string) error {
		t.Helper()
		return startError(t, Dev(dir, "127.0.0.1:0"))
	}
	run := func(dir, id string) {
		t.Helper()
		in := open(t, dir, nil)
		openAttempt(t, in.server.url(), id)
		require.NoError(t, in.stopNode())
	}
	run(data, "one")
	run(data, "two")
	require.NoError(t, os.Rename(data, moved))
	run(moved, "three")
	require.NoError(t, exec.Command("cp", "-a", moved, copied).Run())
	var rejected *CopiedError
	for range 3 {
		require.ErrorAs(t, start(copied), &rejected)
	}
	require.Equal(t, copied, rejected.Dir)
	run(moved, "four")
	for name, putBack := range map[string][]string{
		"over the original": {"cp", "-a", copied + "/.", moved},
		"beside it":         {"sh", "-c", "rm -rf \"$1\" && cp -a \"$0\" \"$1\"", copied, moved},
	} {
		require.NoError(t, exec.Command(putBack[0], putBack[1:]...).Run())
		require.ErrorAs(t, start(moved), &rejected, name)
	}
	require.NoError(t, os.Remove(filepath.Join(moved, placeName)))
	require.ErrorAs(t, start(moved), &rejected, "without the file")
}

// A directory of an older build, which recorded the inode number of the lock file, is not taken for a copy.
func TestDirectoryOfAnOlderBuildIsNoCopy(t *testing.T) {
	data := t.TempDir()
	require.NoError(t, open(t, data, nil).stopNode())
	lock, err := lockData(data)
	require.NoError(t, err)
	place, err := placeOf(lock)
	require.NoError(t, err)
	var inode string
	_, err = fmt.Sscan(place, &inode)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(data, placeName), []byte(inode+"\n"), 0o600))
	require.NoError(t, checkPlace(data, lock))
	require.NoError(t, os.WriteFile(filepath.Join(data, placeName), []byte("1"+inode+"\n"), 0o600))
	var rejected *CopiedError
	require.ErrorAs(t, checkPlace(data, lock), &rejected)
	require.NoError(t, lock.Close())
}
