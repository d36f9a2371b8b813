package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// shell runs a line in a shell, with flightd as $F.
func (s *server) shell(line string) result {
	s.t.Helper()
	return s.beginCommand("/bin/sh", "-c", "F="+program+"; export FLIGHTD_ADDR="+s.url()+"; "+line).wait()
}

// Data on standard input reaches the command or is rejected; an empty standard input is not.
func TestExec_DataOnStandardInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	dump := filepath.Join(t.TempDir(), "dump")
	require.NoError(t, os.WriteFile(dump, []byte("rows\n"), 0o600))
	for _, line := range []string{"echo rows | $F exec --key a -- cat", "export F; bash -c '$F exec --key a -- cat <" + dump + "; exit $?'"} {
		r := s.shell(line)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %v", line, r)
		require.Contains(t, r.err, "standard input has data, which the command would not get", line)
		require.Contains(t, r.err, "--input -", line)
		require.Empty(t, r.out, line)
	}
	require.Equal(t, cli.ExitFailed, s.flightd("flights", "get", "a").code, "nothing was opened")
	r := s.shell("echo rows | $F exec --key b --input - -- cat")
	require.Equal(t, "rows\n", r.out, "%v", r)
	for i, line := range []string{": | $F exec --key c0 -- cat", "$F exec --key c1 -- cat </dev/null", "$F exec --key c2 -- cat <&-", "echo x | { cat; $F exec --key c3 -- cat; }"} {
		r := s.shell(line)
		require.Zero(t, r.code, "%d %s: %v", i, line, r)
		require.NotContains(t, r.err, "standard input", line)
	}
	// The lines of a loop, and a script that a shell reads, belong to the shell.
	for _, line := range []string{"while read x; do $F exec --key loop-$x -- echo $x; done <" + dump, "printf 'a\nb\n' | while read x; do $F exec --key pipe-$x -- echo $x; done",
		"printf '%s exec --key script-1 -- echo one\n%s exec --key script-2 -- echo two\n' $F $F | sh"} {
		r := s.shell(line)
		require.Zero(t, r.code, "%s: %v", line, r)
		require.NotContains(t, r.err, "standard input", line)
	}
	for _, key := range []string{"loop-rows", "pipe-a", "pipe-b", "script-1", "script-2"} {
		require.Equal(t, "succeeded", s.flight(key).State, key)
	}
	r = s.shell("(sleep 1; echo rows) | $F exec --key d -- sleep 3")
	require.Zero(t, r.code, "%v", r)
	require.Contains(t, r.err, "standard input has data, which the command did not get")
	r = s.shell(": | $F exec --key e --input - -- cat")
	require.Zero(t, r.code, "%v", r)
	require.Contains(t, r.err, "--input - is empty")
	r = s.shell("echo '{}' | $F submit mail m-1")
	require.Zero(t, r.code, "%v", r)
	require.Contains(t, r.err, "standard input has data, which is not read: --input @- makes it the input")
}

// An empty --input is an error and not a job without input.
func TestSubmit_EmptyInput(t *testing.T) {
	s, _ := startFake(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, input := range []string{"", "@" + empty, "@-"} {
		for _, command := range [][]string{{"submit", "mail", "m-1"}, {"sagas", "start", "trip", "--id", "1"}} {
			r := s.flightd(append(command, "--input", input)...)
			require.Equal(t, cli.ExitUsage, r.code, "%v: %v", command, r)
			require.Contains(t, r.err, "--input is empty")
		}
	}
	require.Empty(t, s.flightd("flights", "ls", "-o", "id").out)
}
