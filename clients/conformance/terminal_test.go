//go:build clients

package conformance

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shells are the shells in which every printed command must run.
var shells = []string{"bash", "zsh"}

// terminal is an interactive shell. It reads what is typed like the shell of a reader: zsh, for example, takes a # for a
// word and not for the begin of a comment.
type terminal struct {
	t     testing.TB
	cmd   *exec.Cmd
	typed io.Writer
	lines chan string // what the shell and everything started in it print; closed after the last of them has ended
	count int
}

// openTerminal starts a shell in dir, with what is added to the environment. It is closed at the end of the test.
func openTerminal(t testing.TB, shell, dir string, env ...string) *terminal {
	t.Helper()
	requireTools(t, shell)
	x := &terminal{t: t, cmd: exec.Command(shell, map[string][]string{"bash": {"--norc", "--noprofile", "--noediting", "-i"}, "zsh": {"-f", "-i", "+o", "promptsp", "+o", "promptcr"}}[shell]...), lines: make(chan string, 1<<10)}
	x.cmd.Dir, x.cmd.Env = dir, environment(append(env, "PS1=", "PS2=", "PROMPT=", "HISTFILE=")...)
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // under nohup, the shell would inherit that SIGHUP is ignored
	printed, output, err := os.Pipe()
	require.NoError(t, err)
	x.cmd.Stdout, x.cmd.Stderr = output, output
	x.typed, err = x.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, x.cmd.Start())
	require.NoError(t, output.Close())
	go func() {
		defer close(x.lines)
		for r := bufio.NewScanner(printed); r.Scan(); {
			x.lines <- r.Text()
		}
	}()
	t.Cleanup(x.close)
	return x
}

// start types a command that does not end.
func (te *terminal) start(command string) {
	te.t.Helper()
	_, err := fmt.Fprintln(te.typed, command)
	require.NoError(te.t, err)
}

// run types a text, waits until the shell has executed it, and returns what was printed meanwhile. The exit code stays
// in $?.
func (te *terminal) run(text string) string {
	te.t.Helper()
	te.count++
	end := fmt.Sprintf("== end of %d ==", te.count)
	te.start(strings.TrimSuffix(text, "\n") + "\n" + `last=$?; printf '\n%s\n' '` + end + `'; (exit $last)`)
	var printed []string
	timeout := time.After(5 * time.Minute) // a build on a busy machine is the slowest
	for {
		select {
		case line, open := <-te.lines:
			if line == end {
				return strings.TrimSpace(strings.Join(printed, "\n"))
			}
			require.True(te.t, open, "the shell has ended:\n%s", strings.Join(printed, "\n"))
			printed = append(printed, line)
		case <-timeout:
			require.FailNow(te.t, "no end", "%s\n%s", text, strings.Join(printed, "\n"))
		}
	}
}

// close closes the window: SIGHUP to everything that runs in it, as on a real terminal, and waits for the end of all.
func (te *terminal) close() {
	_ = syscall.Kill(-te.cmd.Process.Pid, syscall.SIGHUP)
	timeout := time.After(waitTimeout)
	var printed []string
	for {
		select {
		case line, open := <-te.lines:
			if open {
				printed = append(printed, line)
				continue
			}
			_ = te.cmd.Wait()
			if te.t.Failed() {
				te.t.Logf("printed in the terminal:\n%s", strings.Join(printed, "\n"))
			}
			return
		case <-timeout:
			_ = syscall.Kill(-te.cmd.Process.Pid, syscall.SIGKILL)
			te.t.Errorf("a program outlived its terminal:\n%s", strings.Join(printed, "\n"))
			return
		}
	}
}
