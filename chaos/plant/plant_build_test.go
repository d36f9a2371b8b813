//go:build chaos

package plant

import (
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each bug compiles, and is real: the test that it names fails with it.
func TestBugs_Build(t *testing.T) {
	for i := range Bugs {
		b := &Bugs[i]
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			overlay, err := Overlay(b, "../..", t.TempDir())
			require.NoError(t, err)
			run := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = filepath.Join("..", "..")
				cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
				said, err := cmd.CombinedOutput()
				return string(said), err
			}
			packages := []string{"build", "-overlay", overlay}
			for _, e := range b.Edits {
				if dir := "./" + path.Dir(e.File); !slices.Contains(packages, dir) {
					packages = append(packages, dir)
				}
			}
			said, err := run(packages...)
			require.NoError(t, err, said)
			if dir, name, ok := strings.Cut(b.Test, " "); ok {
				said, err = run("test", "-vet=off", "-count=1", "-failfast", "-overlay", overlay, "-run", "^"+name+"$", "./"+dir)
				require.Error(t, err, "%s passes", b.Test)
				require.Contains(t, said, "--- FAIL: "+name)
			}
		})
	}
}

// The binary of a bug runs.
func TestBuild(t *testing.T) {
	out := filepath.Join(t.TempDir(), "flightd")
	require.NoError(t, Build(t.Context(), Bugs[0], "../..", out))
	require.NoError(t, exec.CommandContext(t.Context(), out, "version").Run())
}
