package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// A script that charges and then finds an inner key busy has acted: its own key must not become free.
func TestExec_NestedBusyKeyLeavesTheOuterInDoubt(t *testing.T) {
	s := startServer(t)
	shop := NewShop(t, true)
	busy := s.begin("exec", "--key", "busy", "--", shop.path("pay.sh"))
	Eventually(t, "the inner key is busy", 10*time.Second, func() bool { return len(shop.Pids("started")) == 1 })
	charged := filepath.Join(t.TempDir(), "charged")
	script := fmt.Sprintf("set -e; echo x >> %s; %s exec --key busy --wait 0 -- %s", charged, program, shop.path("pay.sh"))
	for _, flags := range [][]string{nil, {"--not-done-exit", "75"}} {
		key := fmt.Sprintf("outer-%d", len(flags))
		r := s.flightd(sh(key, flags, script)...)
		require.Equal(t, cli.ExitBusyInside, r.code, "%v", r)
		require.Contains(t, r.err, "idempotency_in_flight")
		require.Equal(t, "in_doubt", s.flight(key).State)
		require.Equal(t, cli.ExitInDoubt, s.flightd(sh(key, flags, script)...).code)
	}
	data, err := os.ReadFile(charged)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(data), "x"), "once for each outer key")
	shop.release()
	require.Zero(t, busy.wait().code)
}

// No exit code means not done, unless a flag names it.
func TestExec_WhichExitCodesMeanThatNothingWasDone(t *testing.T) {
	s := startServer(t)
	for i, row := range []struct {
		flags string
		exit  string
		state string
	}{
		{"", "exit 75", "in_doubt"},
		{"--not-done-exit 75", "exit 75", "ready"},
		{"--not-done-exit 3 --not-done-exit 4", "exit 4", "ready"},
		{"--not-done-exit 3", "exit 4", "in_doubt"},
		{"--not-done-exit 3 --failure refused", "exit 3", "ready"},
		{"--not-done-exit 3 --failure refused", "exit 75", "failed"},
		{"", "exit 79", "in_doubt"},
		{"", "exit 126", "in_doubt"}, // a shell's code for a command that it could not run, after commands that it did run
		{"", "no-such-command", "in_doubt"},
		{"--failure not_done", "exit 4", "ready"},
		{"--failure not_done", "exit 137", "in_doubt"}, // a shell's code for a killed command
		{"--failure refused", "exit 143", "in_doubt"},
		{"--failure not_done", "exit 255", "ready"},
	} {
		key := fmt.Sprintf("code-%d", i)
		r := s.flightd(sh(key, strings.Fields(row.flags), row.exit)...)
		require.Equal(t, row.state, s.flight(key).State, "%s -- %s: %v", row.flags, row.exit, r)
		if row.state == "in_doubt" && !strings.Contains(row.flags, "--not-done-exit") {
			require.Contains(t, r.err, "--not-done-exit")
		}
	}
	require.Equal(t, 127, s.flightd("exec", "--key", "missing", "--", "/does/not/exist").code)
	require.Equal(t, "ready", s.flight("missing").State, "that nothing was started is certain")
	for _, code := range []string{"0", "-1", "126", "137", "many"} {
		r := s.flightd(sh("bad", []string{"--not-done-exit", code}, "true")...)
		require.Equal(t, cli.ExitUsage, r.code, "%v", r)
		require.Contains(t, r.err, "--not-done-exit")
	}
}
