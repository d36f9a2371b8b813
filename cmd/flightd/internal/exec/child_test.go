package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHelperParent is not a test: it is the process that is killed in TestChild_WholeGroupDiesWithItsParent.
func TestHelperParent(t *testing.T) {
	dir := os.Getenv("FLIGHTD_TEST_PARENT")
	if dir == "" {
		return
	}
	script := "echo $$ > parent; (echo $(exec sh -c 'echo $PPID') > grandchild; exec sleep 600) & wait"
	c, err := startChild(childSpec{argv: []string{"/bin/sh", "-c", "cd " + dir + "; " + script}, env: os.Environ(), out: os.Stderr, err: os.Stderr})
	require.NoError(t, err)
	c.wait(context.Background())
}

// readPID reads a process id written by a script. It returns 0 while the script has not written one.
func readPID(t *testing.T, path string) int {
	data, err := os.ReadFile(path)
	if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return pid
}

func TestChild_WholeGroupDiesWithItsParent(t *testing.T) {
	dir := t.TempDir()
	parent := exec.Command(os.Args[0], "-test.run=^TestHelperParent$")
	parent.Env = append(os.Environ(), "FLIGHTD_TEST_PARENT="+dir)
	err := parent.Start()
	require.NoError(t, err)
	var child, grandchild int
	eventually(t, "both run", 20*time.Second, func() bool {
		child, grandchild = readPID(t, filepath.Join(dir, "parent")), readPID(t, filepath.Join(dir, "grandchild"))
		return child > 0 && grandchild > 0
	})
	_ = parent.Process.Kill()
	_ = parent.Wait()
	eventually(t, "the command is dead", 5*time.Second, func() bool { return !alive(child) })
	eventually(t, "what it started is dead", 5*time.Second, func() bool { return !alive(grandchild) })
}

func TestChild_EndsAsItDid(t *testing.T) {
	var out, errOut bytes.Buffer
	for _, test := range []struct {
		script string
		want   childEnd
	}{
		{"echo a; echo b >&2", childEnd{}},
		{"exit 7", childEnd{code: 7}},
		{"kill -9 $$", childEnd{code: 137, signal: syscall.SIGKILL}},
	} {
		c, err := startChild(childSpec{argv: []string{"/bin/sh", "-c", test.script}, out: &out, err: &errOut})
		require.NoError(t, err)
		got := c.wait(t.Context())
		require.Equal(t, test.want, got, "%s: %+v", test.script, got)
	}
	require.Equal(t, "a\n", out.String(), "output %q, %q", out.String(), errOut.String())
	require.Equal(t, "b\n", errOut.String(), "output %q, %q", out.String(), errOut.String())
}

func TestChild_StartError(t *testing.T) {
	for _, argv := range [][]string{{"/does/not/exist"}, {"no-such-program-anywhere"}, {t.TempDir()}} {
		_, err := startChild(childSpec{argv: argv})
		require.Error(t, err, "%v was started", argv)
	}
}

// TestChild_LeftoversDoNotHoldItUp: a process that keeps the output open delays the end by outputDelay only.
func TestChild_LeftoversDoNotHoldItUp(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	c, err := startChild(childSpec{argv: []string{"/bin/sh", "-c", "sleep 600 & echo done; echo $!"}, out: &out, err: &out})
	require.NoError(t, err)
	end := c.wait(t.Context())
	if lines := strings.Fields(out.String()); end != (childEnd{}) || len(lines) != 2 || lines[0] != "done" {
		t.Errorf("%+v, %q", end, out.String())
	} else if pid, err := strconv.Atoi(lines[1]); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	took := time.Since(start)
	require.LessOrEqual(t, took, 30*time.Second, "it took %v", took)
}

// TestChild_SignalAfterItsEndCutsNothingShort: after its end, while a process that it left behind keeps the output open, a
// command has its exit code already.
func TestChild_SignalAfterItsEndCutsNothingShort(t *testing.T) {
	if !parentDeathSignal {
		t.Skip("only Linux tells whether a command has ended before it is waited for")
	}
	for name, send := range map[string]func(context.CancelFunc, *child){
		"signal":   func(_ context.CancelFunc, c *child) { c.send(syscall.SIGTERM) },
		"time-out": func(cancel context.CancelFunc, _ *child) { cancel() },
	} {
		var out bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		c, err := startChild(childSpec{argv: []string{"/bin/sh", "-c", "sleep 600 & exit 7"}, out: &out, err: &out})
		require.NoError(t, err)
		eventually(t, "it has ended", 10*time.Second, func() bool { return hasExited(c.cmd.Process.Pid) })
		send(cancel, c)
		require.Equal(t, childEnd{code: 7}, c.wait(ctx), name)
		cancel()
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, within, 20*time.Millisecond, what)
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}
