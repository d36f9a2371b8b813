package netbed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/disk"
)

// Without root, a network has links that can be cut and delayed, and a disk can be full.
func TestBecomeRoot(t *testing.T) {
	const env = "FLIGHTD_TEST_BECOME_ROOT"
	if os.Getenv(env) == "" {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		binary, err := os.ReadFile("/proc/self/exe")
		require.NoError(t, err)
		child := exec.Command(filepath.Join(dir, "test"), "-test.v", "-test.run=^TestBecomeRoot$")
		require.NoError(t, os.WriteFile(child.Path, binary, 0o755))
		child.Env, child.Dir = append(os.Environ(), env+"=1"), "/"
		if os.Geteuid() == 0 {
			child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}} // nobody
		}
		said, err := child.CombinedOutput()
		require.NoError(t, err, "%s", said)
		if strings.Contains(string(said), "--- SKIP") {
			t.Skipf("%s", said)
		}
		return
	}
	err := BecomeRoot() // and the test begins again
	if errors.Is(err, ErrPermission) {
		t.Skip(err)
	}
	require.NoError(t, err)
	b := newBed(t, "server", "client")
	address := b.hosts[0].Address.String() + ":1"
	for _, how := range []Impairment{{Loss: 100}, {Delay: time.Millisecond}} {
		f, err := b.Impair(how, Link{From: b.Host("client"), To: b.Host("server")})
		require.NoError(t, err)
		timeout := moment
		if how.Loss == 0 {
			timeout = limit
		}
		require.Equal(t, how.Loss == 0, b.Host("client").dial(address, timeout) == nil)
		bites, err := f.Heal()
		require.NoError(t, err)
		require.Positive(t, bites)
	}
	d, err := disk.NewInMemory(filepath.Join(t.TempDir(), "disk"), 16<<20)
	require.NoError(t, err)
	bite, err := d.Fill(0)
	require.NoError(t, err)
	require.Contains(t, bite, "no space left on device")
	require.NoError(t, d.Close())
	require.NoDirExists(t, d.Dir)
}
