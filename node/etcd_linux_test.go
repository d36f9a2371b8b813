package node

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
)

// Etcd panics if it cannot create its log, as on a full disk; here the path is too long. The member never closes its
// files, so the test runs it in another process.
func TestEtcd_WALCreationFailureIsReturnedAsError(t *testing.T) {
	const alone = "FLIGHTD_TEST_ALONE"
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v\n%s", err, out)
		return
	}
	dir := t.TempDir()
	for len(dir) < syscall.PathMax-40 {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, syscall.PathMax-41-len(dir))))
	}
	e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, slog.New(slog.DiscardHandler)), clusterstore.Kill)
	if err == nil {
		e.close()
		t.Fatal("it started")
	}
	require.Contains(t, err.Error(), "WAL", "the error is %.200v", err)
}
