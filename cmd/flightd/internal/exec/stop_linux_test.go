package exec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
)

// TestExec_LostLeaseKillsAStoppedCommand: a stopped command whose claim is lost gets SIGTERM before SIGCONT.
func TestExec_LostLeaseKillsAStoppedCommand(t *testing.T) {
	dir := t.TempDir()
	started := func() int { return readPID(t, filepath.Join(dir, "started")) }
	script := fmt.Sprintf("trap 'echo $$ >> %s/paid; exit' CONT; echo $$ >> %s/started; while :; do :; done", dir, dir)
	lost := false
	e, _ := newTestAttempt(t, []string{"/bin/sh"}, false)
	e.flags.leaseLost = cli.NewChoice("kill", "finish")
	at := effect.NewAttempt(effect.Spec{MayStart: func() error {
		if lost {
			return effect.ErrLeaseLost
		}
		return nil
	}})
	var killed error
	c, err := e.start(at, func(err error) { killed = err }, childSpec{argv: []string{"/bin/sh", "-c", script}, out: io.Discard, err: io.Discard})
	require.NoError(t, err)
	eventually(t, "it runs", 10*time.Second, func() bool { return started() > 0 })
	c.send(syscall.SIGSTOP)
	eventually(t, "it is stopped", 10*time.Second, func() bool { return stopped(started()) })
	lost = true
	e.continueLocked()
	end := c.wait(t.Context())
	require.Equal(t, syscall.SIGTERM, end.signal, "it ended with %+v, for %v", end, killed)
	require.NoFileExists(t, filepath.Join(dir, "paid"), "it ended with %+v, for %v", end, killed)
	require.ErrorIs(t, killed, errLeaseLost, "it ended with %+v, for %v", end, killed)
}

// stopped reports whether a process is stopped.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && bytes.HasPrefix(after, []byte("T"))
}
