package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// npx starts the script of the npm package by a shell, which does not pass on the SIGTERM that ends it. flightd ends then, too, and a
// flightd that a user's shell has started outlives that shell.
func TestNpm_EndsWithNpx(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node")
	}
	dir := t.TempDir()
	platform := runtime.GOOS + "-" + map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if runtime.GOARCH != "amd64" {
		platform = runtime.GOOS + "-" + runtime.GOARCH
	}
	bin := filepath.Join(dir, "node_modules", "@flightd", "flightd-"+platform, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "flightd"), []byte("#!/bin/sh\ntrap 'echo TERM >>log; exit 0' TERM\necho ready >>log\nwhile :; do sleep 0.05; done\n"), 0o755))
	script, err := os.ReadFile("npm/flightd.js")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "flightd.js"), script, 0o644))
	for _, npx := range []bool{true, false} {
		log := filepath.Join(dir, "log")
		require.NoError(t, os.WriteFile(log, nil, 0o644))
		logged := func(word string) func() bool {
			return func() bool {
				text, err := os.ReadFile(log)
				return err == nil && strings.Contains(string(text), word)
			}
		}
		shell := exec.Command("/bin/sh", "-c", "node flightd.js dev & echo $! >pid; wait")
		shell.Dir, shell.Env = dir, append(os.Environ(), "npm_lifecycle_event=")
		if npx {
			shell.Env = append(shell.Env, "npm_lifecycle_event=npx")
		}
		require.NoError(t, shell.Start())
		require.Eventually(t, logged("ready"), time.Minute, 20*time.Millisecond)
		require.NoError(t, shell.Process.Signal(syscall.SIGTERM))
		_ = shell.Wait()
		if npx {
			require.Eventually(t, logged("TERM"), time.Minute, 20*time.Millisecond, "flightd outlives npx")
			continue
		}
		require.Never(t, logged("TERM"), time.Second, 50*time.Millisecond)
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		require.NoError(t, err)
		require.NoError(t, exec.Command("kill", strings.TrimSpace(string(text))).Run())
		require.Eventually(t, logged("TERM"), time.Minute, 20*time.Millisecond, "SIGTERM is passed on")
	}
}
