package node

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopiedDirectoryIsRejected: a copy is rejected at each start, in another place and put back over the original; the
// original and a moved directory are accepted.
func TestCopiedDirectoryIsRejected(t *testing.T) {
	t.Parallel()
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
		"only its parts":    {"sh", "-c", "rm -rf \"$1\"/ledger \"$1\"/etcd && cp -a \"$0\"/ledger \"$0\"/etcd \"$1\"", copied, moved},
		"only the ledger":   {"sh", "-c", "rm -rf \"$1\"/ledger \"$1\"/etcd && cp -a \"$0\"/ledger \"$1\"", copied, moved},
	} {
		require.NoError(t, exec.Command(putBack[0], putBack[1:]...).Run())
		require.ErrorAs(t, start(moved), &rejected, name)
	}
	require.NoError(t, os.Remove(filepath.Join(moved, "ledger", placeName)))
	require.ErrorAs(t, start(moved), &rejected, "without the file")
}

// A start that finds a copy before all of its files have arrived does not make it an original.
func TestIncompleteCopyIsRejected(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	data, copied := filepath.Join(parent, "data"), filepath.Join(parent, "copied")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "one")
	require.NoError(t, in.stopNode())
	require.NoError(t, exec.Command("cp", "-a", data, copied).Run())
	var rejected *CopiedError
	for _, missing := range []string{"IDENTITY", placeName, "log", "CURRENT"} {
		away, back := filepath.Join(parent, missing), filepath.Join(copied, "ledger", missing)
		require.NoError(t, os.Rename(back, away))
		require.ErrorAs(t, startError(t, Dev(copied, "127.0.0.1:0")), &rejected, missing)
		require.NoError(t, os.RemoveAll(back))
		require.NoError(t, os.Rename(away, back))
		require.ErrorAs(t, startError(t, Dev(copied, "127.0.0.1:0")), &rejected, missing)
	}
}

// An operator's word is about one directory and its ledger: not about a copy of both, and not about another ledger that is
// put there before the start.
func TestAcceptanceOfAnotherCopyIsIgnored(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	data, copied := filepath.Join(parent, "data"), filepath.Join(parent, "copied")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "one")
	require.NoError(t, in.stopNode())
	require.NoError(t, exec.Command("cp", "-a", data, copied).Run())
	for _, moved := range []bool{true, false} {
		require.NoError(t, AcceptRestore(copied, Acceptance{Reason: "r", Actor: "ada", Moved: moved}))
		var rejected *CopiedError
		backup := filepath.Join(parent, fmt.Sprint("backup", moved))
		require.NoError(t, exec.Command("cp", "-a", copied, backup).Run())
		require.ErrorAs(t, startError(t, Dev(backup, "127.0.0.1:0")), &rejected)
		require.NoError(t, exec.Command("sh", "-c", "rm -rf \"$1\"/ledger && cp -a \"$0\"/ledger \"$1\"", data, copied).Run())
		require.ErrorAs(t, startError(t, Dev(copied, "127.0.0.1:0")), &rejected)
	}
}

// A copy of a running node's directory was not only moved, whatever an operator says.
func TestMovedDirectoryWasStopped(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	data, copied := filepath.Join(parent, "data"), filepath.Join(parent, "copied")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "one")
	require.NoError(t, exec.Command("cp", "-a", data, copied).Run())
	require.NoError(t, in.stopNode())
	for range 2 { // neither the word nor the start that follows makes the copy a directory that was stopped
		var rejected *CopiedError
		require.ErrorAs(t, AcceptRestore(copied, Acceptance{Reason: "r", Actor: "ada", Moved: true}), &rejected)
		require.True(t, rejected.NotOnly)
		require.NoFileExists(t, filepath.Join(copied, acceptanceName))
		require.ErrorAs(t, startError(t, Dev(copied, "127.0.0.1:0")), &rejected)
		require.False(t, rejected.NotOnly)
	}
	require.NoError(t, AcceptRestore(copied, Acceptance{Reason: "r", Actor: "ada"}))
	require.NoError(t, startError(t, Dev(copied, "127.0.0.1:0")))
}

// A restored backup was not only moved, whatever an operator says, also where it was accepted before.
func TestRestoredDirectoryWasNotOnlyMoved(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	backup, restored := filepath.Join(parent, "backup"), filepath.Join(parent, "restored")
	in := open(t, filepath.Join(parent, "data"), nil)
	openAttempt(t, in.server.url(), "one")
	answer, err := http.Get(in.server.url() + "/v1/backup")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, os.Mkdir(backup, 0o700))
	tar := exec.Command("tar", "-x", "-C", backup)
	tar.Stdin = answer.Body
	require.NoError(t, tar.Run())
	require.NoError(t, in.stopNode())
	_, err = RestoreBackup(backup, restored)
	require.NoError(t, err)
	moved := Acceptance{Reason: "r", Actor: "ada", Moved: true}
	var rejected *CopiedError
	require.ErrorAs(t, AcceptRestore(restored, moved), &rejected)
	require.NoFileExists(t, filepath.Join(restored, acceptanceName))
	require.NoError(t, AcceptRestore(restored, Acceptance{Reason: "r", Actor: "ada"}))
	require.ErrorAs(t, AcceptRestore(restored, moved), &rejected, "the word that something is missing was taken back")
	require.NoError(t, startError(t, Dev(restored, "127.0.0.1:0")))
	require.NoError(t, AcceptRestore(restored, moved), "it has run, and was stopped")
}
