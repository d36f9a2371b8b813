package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// No exit code means not done, unless a flag names it.
func TestExec_WhichExitCodesMeanThatNothingWasDone(t *testing.T) {
	s, _ := startFake(t)
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
		s.flightd(sh("bad", []string{"--not-done-exit", code}, "true")...).want(t, cli.ExitUsage, "", "--not-done-exit")
	}
}
