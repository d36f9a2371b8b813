//go:build clients

package conformance

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// TestPerLanguage runs each language's own tests against a flightd of their own.
func TestPerLanguage(t *testing.T) {
	t.Parallel()
	own := map[string][]string{
		"python":     {python(), "-B", "-W", "error", "test_flightd.py"},
		"typescript": {"node", "--test", filepath.Join("dist", "typescript", "flightd.test.mjs")},
	}
	for _, l := range languages() {
		if own[l.name] == nil || !wanted()[l.name] {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.requireReady(t)
			h := startServer(t, false) // these tests make their own requests, too
			cmd := exec.Command(own[l.name][0], own[l.name][1:]...)
			cmd.Dir, cmd.SysProcAttr = filepath.Join("..", l.name), proctest.KillWithParent()
			cmd.Env = environment("FLIGHTD_ADDR="+h.address(), "XDG_STATE_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out) // also of a run that was slow
			require.NoError(t, err)
		})
	}
}

// TestPythonSyntax checks that the Python client has only the syntax of Python 3.9, the oldest supported version.
func TestPythonSyntax(t *testing.T) {
	if !wanted()["python"] {
		return
	}
	languages()[1].requireReady(t)
	check := `import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 9))`
	out, err := exec.Command(python(), "-c", check, filepath.Join("..", "python", "flightd.py")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestLockFileNamesNoHost: the lock file pins packages by version and digest, and names no registry.
func TestLockFileNamesNoHost(t *testing.T) {
	lock := read(t, "../typescript/package-lock.json")
	require.Contains(t, lock, `"integrity": "sha512-`)
	require.NotContains(t, lock, "://")
}
