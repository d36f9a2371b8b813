package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	log := new(lockedBuffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	start := func(name, cluster, address string) (kill func()) {
		serve := exec.Command(program, "serve", "--cluster", filepath.Join(dir, "cluster", cluster), "--data", filepath.Join(dir, name), "--listen", address)
		serve.Stderr = log
		require.NoError(t, serve.Start())
		kill = sync.OnceFunc(func() {
			_ = serve.Process.Kill()
			_ = serve.Wait()
		})
		t.Cleanup(kill)
		return kill
	}
	var kill []func()
	for _, name := range []string{"a", "b", "c"} {
		address := proctest.Address(t)
		urls = append(urls, "http://"+address)
		kill = append(kill, start(name, name, address))
	}
	at := func(n int, args ...string) []string { return append([]string{"--server", urls[n]}, args...) }
	admin = filepath.Join(dir, "first-token")
	awaitLeader := func(n int) { // a command waits 5 s for a server, and an election may take longer under load
		t.Helper()
		Eventually(t, "a node leads, and the cluster takes the first token", func() bool {
			out, _ := exec.Command(program, at(n, "cluster", "status", "--token-file", admin)...).Output() // it ends with 1 beside a dead node
			return bytes.Contains(out, []byte("leader"))
		})
	}
	awaitLeader(0)
	status, _ := run(true, at(1, "cluster", "status", "--wait", "2m", "--token-file", admin)...)
	require.Contains(t, status, "leader")
	pay := filepath.Join(dir, "pay.token")
	createPay := at(1, "token", "create", "pay", "--namespace", "default", "--out", pay, "--token-file", admin)
	run(true, createPay...)
	exec1 := func(n int) []string {
		return at(n, "exec", "--token-file", pay, "--key", "pay-1", "--", "sh", "-c", "echo paid by $$")
	}
	first, _ := run(true, exec1(2)...)
	for n := range urls {
		again, _ := run(true, exec1(n)...)
		require.Equal(t, first, again)
	}
	revoke := func(name string) (says string) {
		_, says = run(true, at(1, "token", "revoke", name, "--namespace", "default", "--reason", "a test", "--yes", "--token-file", admin)...)
		return says
	}
	run(true, at(1, "token", "create", "late", "--namespace", "default", "--out", filepath.Join(dir, "late.token"), "--token-file", admin)...)
	Eventually(t, "a revocation reaches all nodes", func() bool { // it gives a node a second, which is little under load
		reached := !strings.Contains(revoke("pay"), "not reached")
		if !reached {
			run(true, createPay...)
		}
		return reached
	})
	for n := range urls {
		_, says := run(false, exec1(n)...)
		require.Contains(t, says, "unauthenticated", "node %d", n)
	}
	_, says := run(false, "serve", "--data", filepath.Join(dir, "a2"), "--listen", proctest.Address(t))
	require.Contains(t, says, "does not exist", "without --cluster an empty directory is no node")

	// The disk of a node is lost; the node may lead.
	ca, lost := filepath.Join(dir, "cluster"), 0
	kill[lost]()
	awaitLeader(1)
	require.Regexp(t, "not reached: a[,;]", revoke("late")) // another node may be slow
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))
	replace := func(out string) []string {
		return at(1, "cluster", "replace", "a", "--ca", ca, "--out", filepath.Join(ca, out), "--reason", "its disk died", "--yes", "--token-file", admin)
	}
	Eventually(t, "the others know that node a is away", func() bool { return exec.Command(program, replace("a-2")...).Run() == nil })
	run(true, replace("a-2")...) // a repeat
	_, says = run(false, append(replace("b"), "--while-running")...)
	require.Contains(t, says, "name a new one")
	_, says = run(false, at(1, "cluster", "replace", "b", "--ca", ca, "--out", filepath.Join(ca, "b-2"), "--reason", "a mistake", "--yes", "--token-file", admin)...)
	require.Contains(t, says, "precondition_failed")
	require.NoDirExists(t, filepath.Join(ca, "b-2"), "a rejected replacement leaves no directory")
	require.DirExists(t, filepath.Join(ca, "a-2"))
	start("a", "a-2", strings.TrimPrefix(urls[lost], "http://"))
	Eventually(t, "the new node is a voter", func() bool {
		out, err := exec.Command(program, at(1, "cluster", "status", "-o", "json", "--token-file", admin)...).Output()
		return err == nil && !bytes.Contains(out, []byte(`"problem"`))
	})
	kill[1]()
	awaitLeader(lost)
	run(true, at(lost, "token", "create", "other", "--namespace", "default", "--out", filepath.Join(dir, "other.token"), "--token-file", admin)...)
	audit, _ := run(true, at(lost, "audit", "ls", "--token-file", admin)...)
	require.Contains(t, audit, "its disk died")
}
