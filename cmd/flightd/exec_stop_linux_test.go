package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// TestHelperShell is not a test: it plays the shell in the tests below, the leader of a session that gives each command
// its own process group. It writes the command's process id to the file of its first argument.
func TestHelperShell(t *testing.T) {
	if os.Getenv("FLIGHTD_TEST_SHELL") == "" {
		return
	}
	args := os.Args[len(os.Args)-argsAfterDash():]
	c := exec.Command(args[1], args[2:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := c.Start()
	if err == nil {
		err = os.WriteFile(args[0], fmt.Appendf(nil, "%d\n", c.Process.Pid), 0o600)
	}
	require.NoError(t, err)
	var exit *exec.ExitError
	err = c.Wait()
	require.False(t, err != nil && !errors.As(err, &exit))
	os.Exit(c.ProcessState.ExitCode())
}

// argsAfterDash returns the number of arguments after --.
func argsAfterDash() int {
	for i, arg := range os.Args {
		if arg == "--" {
			return len(os.Args) - i - 1
		}
	}
	return 0
}

// job runs the program as a job of a shell.
func (s *server) job(shop *shop, args ...string) *invocation {
	s.t.Helper()
	all := append([]string{"FLIGHTD_TEST_SHELL=1", os.Args[0], "-test.run=^TestHelperShell$", "--", shop.path("job"), program}, args...)
	return s.beginWith(&syscall.SysProcAttr{Setsid: true}, "env", all...)
}

// Stopped reports whether a process is stopped.
func Stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && bytes.HasPrefix(after, []byte("T"))
}

// TestExec_StopsWithItsCommand: Ctrl-Z stops both. With --on-lease-lost kill, a command whose session is lost does not
// continue.
func TestExec_StopsWithItsCommand(t *testing.T) {
	for _, test := range []struct {
		name, ttl, onLost string
		long              bool // until the claim is lost
		code              int
		state             string
	}{
		{"for a moment", "15s", "kill", false, 0, "succeeded"},
		{"for longer, and it is to be killed then", "5s", "kill", true, 128 + int(syscall.SIGTERM), "in_doubt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			shop := NewShop(t, true)
			i := s.job(shop, "exec", "--key", "stop", "--ttl", test.ttl, "--on-lease-lost", test.onLost, "--", "/bin/sh", "-c", PaysWhenContinued(shop))
			Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 && len(shop.Pids("job")) == 1 })
			runner, command := shop.Pids("job")[0], shop.Pids("started")[0]
			err := syscall.Kill(runner, syscall.SIGTSTP)
			require.NoError(t, err)
			Eventually(t, "both are stopped", func() bool { return Stopped(runner) && Stopped(command) })
			if test.long {
				Eventually(t, "the claim is lost", func() bool { return s.flight("stop").State == "in_doubt" })
			}
			err = syscall.Kill(runner, syscall.SIGCONT)
			require.NoError(t, err)
			r := i.wait()
			require.Equal(t, test.code, r.code, "%v\npaid by %v", r, shop.Pids("paid"))
			require.Equal(t, (test.code == 0), (len(shop.Pids("paid")) == 1), "%v\npaid by %v", r, shop.Pids("paid"))
			require.Contains(t, r.err, "stopped together with its command", "%v\npaid by %v", r, shop.Pids("paid"))
			f := s.flight("stop")
			require.Equal(t, test.state, f.State, "the flight is %+v", f)
			require.EqualValues(t, 1, f.Attempts, "the flight is %+v", f)
		})
	}
}

// PaysWhenContinued returns a script that records its start, and pays as soon as it is continued.
func PaysWhenContinued(shop *shop) string {
	return fmt.Sprintf("trap 'echo $$ >> %s; exit' CONT; echo $$ >> %s; while :; do :; done", shop.path("paid"), shop.path("started"))
}

// TestExec_SessionLeaderIgnoresTSTP: a session leader, as in a container, has no shell that could continue it.
func TestExec_SessionLeaderIgnoresTSTP(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := NewShop(t, true)
	i := s.beginWith(&syscall.SysProcAttr{Setsid: true}, program, "exec", "--key", "alone", "--", shop.path("pay.sh"))
	Eventually(t, "it runs", func() bool { return len(shop.Pids("started")) == 1 })
	i.signal(syscall.SIGTSTP)
	shop.release()
	r := i.wait().want(t, cli.ExitOK, "", "")
	require.Len(t, shop.Pids("paid"), 1, "%v", r)
	require.NotContains(t, r.err, "stopped", "%v", r)
}

// TestSignal_BeforeACommandCatchesIt: main catches signals before it has read the command line. One that arrives then ends work
// and exec as a later one does.
func TestSignal_BeforeACommandCatchesIt(t *testing.T) {
	ctx, stop := cli.NotifyContext(t.Context(), syscall.SIGWINCH)
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGWINCH))
	<-ctx.Done()
	for _, test := range []struct {
		args string
		code int
	}{
		{"work charge -- true", 0},
		{"exec --key pay-7 -- true", 128 + int(syscall.SIGWINCH)},
	} {
		var errOut bytes.Buffer
		env := map[string]string{"FLIGHTD_ADDR": "http://127.0.0.1:1", "XDG_STATE_HOME": t.TempDir()}
		terminal := cli.Terminal{In: strings.NewReader(""), Out: io.Discard, Err: &errOut, Env: func(k string) string { return env[k] }}
		code := run(ctx, terminal, strings.Fields(test.args))
		require.Equal(t, test.code, code, "%s: %s", test.args, errOut.String())
	}
}
