package clusterstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// refusals are the operations of a write-ahead log that can fail.
func refusals() map[string][]errorfs.OpKind {
	return map[string][]errorfs.OpKind{
		"write":    {errorfs.OpFileWrite},
		"sync":     {errorfs.OpFileSync, errorfs.OpFileSyncData},
		"rotation": {errorfs.OpCreate, errorfs.OpReuseForWrite},
	}
}

// A failed operation of a write-ahead log ends the process with the system's error, without a stack trace. No caller
// gets a reply after it that the next start does not know. The test runs a child process, because Kill does not
// return.
func TestWALFailureEndsTheProcess(t *testing.T) {
	if name := os.Getenv("FLIGHTD_TEST_REFUSED"); name != "" {
		runUntilKilled(t, name, os.Getenv("FLIGHTD_TEST_DIR"))
		return
	}
	for _, dir := range []string{logDir, stateName(1)} {
		for how := range refusals() {
			t.Run(dir+": "+how, func(t *testing.T) {
				t.Parallel()
				data := t.TempDir()
				cmd := exec.Command(os.Args[0], "-test.run=^TestWALFailureEndsTheProcess$", "-test.timeout=30s")
				cmd.Env = append(os.Environ(), "FLIGHTD_TEST_REFUSED="+dir+" "+how, "FLIGHTD_TEST_DIR="+data)
				var stderr, stdout bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				err := cmd.Run()
				require.Equal(t, exitSoftware, cmd.ProcessState.ExitCode(), "%v\n%s\n%s", err, &stdout, &stderr)
				require.Contains(t, stderr.String(), "killed by "+syscall.ENOSPC.Error())
				require.NotContains(t, stderr.String(), "goroutine ")

				s := openStore(t, Config{Dir: data, Memory: memConfig(nil).Memory})
				flown := 0
				for lines := bufio.NewScanner(&stdout); lines.Scan(); flown++ {
					var n int
					_, err := fmt.Sscanf(lines.Text(), "flew %d", &n)
					require.NoError(t, err, lines.Text())
					require.NotNil(t, mustFlight(t, s, n).Receipt, "flight %d was acknowledged", n)
				}
				require.GreaterOrEqual(t, flown, 10)
				requireConsistent(t, s)
			})
		}
	}
}

// runUntilKilled runs flights until a failed write-ahead log ends the process.
func runUntilKilled(t *testing.T, name, dir string) {
	of, how, _ := strings.Cut(name, " ")
	var full atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.Contains(op.Path, "/"+of+"/") && strings.HasSuffix(op.Path, ".log") && slices.Contains(refusals()[how], op.Kind) {
			return syscall.ENOSPC
		}
		return nil
	}))
	cfg := Config{Dir: dir, FS: fs, Memory: memConfig(nil).Memory}
	cfg.Limits.Kill = func(why error) {
		var cause syscall.Errno
		_ = errors.As(why, &cause)
		fmt.Fprintln(os.Stderr, "killed by", cause)
		os.Exit(exitSoftware)
	}
	s, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	for n, end := 0, time.Now().Add(20*time.Second); time.Now().Before(end); n++ {
		openAndReport(t, s, n)
		fmt.Println("flew", n)
		if n < 10 {
			continue
		}
		full.Store(true)
		s.fsm.flush()
		switch {
		case how == "write":
		case of == logDir:
			_ = s.log.Scrub(context.Background()) // both start a new write-ahead log and sync the old one
		default:
			_ = s.state.db.Flush(context.Background())
		}
	}
}
