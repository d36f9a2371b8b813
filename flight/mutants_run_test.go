//go:build mutants

package flight_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants breaks one rule at a time and requires that another test of its package fails. It builds each broken version with an
// overlay and changes no file.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(m.file)
			require.NoError(t, err)
			tests := build(t, m.file, bytes.Replace(source, []byte(m.old), []byte(m.broken), 1))
			// Most mutants are caught by the table tests, which are fast.
			const slow = "^TestExhaustive|^TestProperty|^TestSagas"
			out, caught := runTests(t, m.file, tests, "-test.skip", slow)
			if !caught {
				out, caught = runTests(t, m.file, tests, "-test.run", slow)
			}
			require.True(t, caught, "no test failed")
			t.Logf("caught by %s", caughtBy(out))
		})
	}
}

// build compiles the tests of a broken version and returns the path of the test binary.
func build(t *testing.T, file string, broken []byte) string {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(file)
	require.NoError(t, err)
	replacement, overlay, tests := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tests")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(replacement, broken, 0o600))
	require.NoError(t, os.WriteFile(overlay, table, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", tests, "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "./"+filepath.Dir(file)).CombinedOutput()
	require.NoError(t, err, "the mutant does not build:\n%s", out)
	return tests
}

// runTests runs tests in the folder of a file.
func runTests(t *testing.T, file, tests string, which ...string) (out []byte, failed bool) {
	t.Helper()
	args := append(which, "-test.short", "-test.failfast")
	if filepath.Dir(file) == "." {
		args = append(args, "-rapid.shrinktime", "0s", "-rapid.nofailfile")
	}
	c := exec.CommandContext(t.Context(), tests, args...)
	c.Dir = filepath.Dir(file)
	out, err := c.CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("FAIL")) && !bytes.Contains(out, []byte("panic")) {
		require.NoError(t, err, "the tests did not run:\n%s", out)
	}
	return out, err != nil
}

func caughtBy(out []byte) string {
	var names []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}
