package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// The steps of docs/operations.md for three machines, on one: found, serve with tokens, a token that is made at one node and used
// and revoked at others.
func TestClusterServe(t *testing.T) {
	t.Parallel()
	dir, admin := t.TempDir(), ""
	run := func(ok bool, args ...string) (out, says string) {
		t.Helper()
		c := exec.Command(program, args...)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		err := c.Run()
		require.Equal(t, ok, err == nil, "flightd %s: %s%s", strings.Join(args, " "), &stdout, &stderr)
		return stdout.String(), stderr.String()
	}
	found := []string{"cluster", "found", "--out", filepath.Join(dir, "cluster"), "--first-token-file", filepath.Join(dir, "first-token")}
	for _, name := range []string{"a", "b", "c"} {
		found = append(found, "--node", name+"="+proctest.Address(t))
	}
	run(true, found...)
	var urls []string
	var nodes []*exec.Cmd
	log := new(lockedBuffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for _, name := range []string{"a", "b", "c"} {
		address := proctest.Address(t)
		urls = append(urls, "http://"+address)
		serve := exec.Command(program, "serve", "--cluster", filepath.Join(dir, "cluster", name), "--data", filepath.Join(dir, name), "--listen", address)
		serve.Stderr = log
		require.NoError(t, serve.Start())
		nodes = append(nodes, serve)
		t.Cleanup(func() {
			_ = serve.Process.Kill()
			_ = serve.Wait()
		})
	}
	at := func(n int, args ...string) []string { return append([]string{"--server", urls[n]}, args...) }
	admin = filepath.Join(dir, "first-token")
	eventually(t, "the cluster takes the first token", 30*time.Second, func() bool {
		return exec.Command(program, at(0, "cluster", "status", "--token-file", admin)...).Run() == nil
	})
	status, _ := run(true, at(1, "cluster", "status", "--token-file", admin)...)
	require.Contains(t, status, "leader")
	pay := filepath.Join(dir, "pay.token")
	run(true, at(1, "token", "create", "pay", "--namespace", "default", "--out", pay, "--token-file", admin)...)
	exec1 := func(n int) []string {
		return at(n, "exec", "--token-file", pay, "--key", "pay-1", "--", "sh", "-c", "echo paid by $$")
	}
	first, _ := run(true, exec1(2)...)
	for n := range urls {
		again, _ := run(true, exec1(n)...)
		require.Equal(t, first, again)
	}
	revoke := func(name string) (says string) {
		_, says = run(true, at(0, "token", "revoke", name, "--namespace", "default", "--reason", "a test", "--yes", "--token-file", admin)...)
		return says
	}
	run(true, at(1, "token", "create", "late", "--namespace", "default", "--out", filepath.Join(dir, "late.token"), "--token-file", admin)...)
	require.NotContains(t, revoke("pay"), "not reached")
	for n := range urls {
		_, says := run(false, exec1(n)...)
		require.Contains(t, says, "unauthenticated", "node %d", n)
	}
	require.NoError(t, nodes[2].Process.Kill())
	require.Contains(t, revoke("late"), "not reached: c;")
	_, says := run(false, "serve", "--data", filepath.Join(dir, "a2"), "--listen", proctest.Address(t))
	require.Contains(t, says, "does not exist", "without --cluster an empty directory is no node")
}
