//go:build unix

package clusterstore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// slowLog is a log whose writes take half a second.
type slowLog struct{ raft.LogStore }

// StoreLogs implements raft.LogStore.
func (slowLog) StoreLogs([]*raft.Log) error {
	fmt.Println("writes")
	for range 50 {
		time.Sleep(10 * time.Millisecond) // of the process's own time: it does not pass while the process is frozen
	}
	return nil
}

// A process that is frozen in the middle of a write, for longer than a write may take, goes on when it is thawed.
func TestWatchdog_FrozenProcess_GoesOn(t *testing.T) {
	const child = "FLIGHTD_TEST_WATCHDOG"
	if os.Getenv(child) != "" {
		l := &watchedLog{LogStore: slowLog{}, timeout: 2 * time.Second, onGrowth: func() {}, markStarted: func() error { return nil }, onStall: func(string, time.Duration) {
			fmt.Println("stalled")
		}}
		require.NoError(t, l.StoreLog(&raft.Log{}))
		fmt.Println("written")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "writes", lines.Text())
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2500 * time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.True(t, lines.Scan())
	require.Equal(t, "written", lines.Text(), "no stall is reported")
}
