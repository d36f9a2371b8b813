package proctest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// T is a test: a testing.TB.
type T interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Spec describes a process.
type Spec struct {
	Name string // for logs and errors
	Path string // of the program
	Args []string
	Env  []string // the whole environment
	Log  string   // file to which standard error is appended; "": discarded

	// Ready reports whether a line of standard output says that the process is ready; nil: the first line does.
	Ready        func(line string) bool
	ReadyTimeout time.Duration // 0: 30 s
	// Line gets every line of standard output, in order; nil: the lines are dropped.
	Line func(line string)
	// Start starts the command, for example on another host; nil: (*exec.Cmd).Start.
	Start func(*exec.Cmd) error
}

// Process is a process that was started. Its methods may be called concurrently.
type Process struct {
	spec  Spec
	cmd   *exec.Cmd
	input io.WriteCloser
	ready chan string   // gets the line that says that the process is ready
	ended chan struct{} // closed when the process has ended
	err   error         // of its end; read only when ended is closed
}

// Start starts a process. It returns as soon as the process runs: see AwaitReady.
func Start(spec Spec) (*Process, error) {
	p := &Process{spec: spec, cmd: exec.Command(spec.Path, spec.Args...), ready: make(chan string, 1), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.SysProcAttr = spec.Env, KillWithParent()
	var log *os.File
	if spec.Log != "" {
		var err error
		if log, err = os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, err
		}
		defer log.Close() // the process has its own descriptor
		p.cmd.Stderr = log
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	start := spec.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go func() { // ends with the process; Kill and Stop wait for it
		defer close(p.ended)
		p.readLines(output)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Run starts a process of a test and waits until it is ready. It is killed at the end of the test; if the test has failed, the
// end of the process's log is shown.
func Run(t T, spec Spec) *Process {
	t.Helper()
	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Kill(); t.Failed() {
			t.Logf("%s logged at last:\n%s", spec.Name, p.LogTail(60))
		}
	})
	if _, err := p.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Process) readLines(output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	ready := false
	for lines.Scan() {
		line := lines.Text()
		if !ready && (p.spec.Ready == nil || p.spec.Ready(line)) {
			ready = true
			p.ready <- line
		}
		if p.spec.Line != nil {
			p.spec.Line(line)
		}
	}
	_, _ = io.Copy(io.Discard, output) // a line that is too long must not block the process
}

// AwaitReady waits until the process is ready and returns the line that says so. It returns an error when the process ends
// before that, when Spec.ReadyTimeout is over, or when ctx ends. It returns the line to one caller only.
func (p *Process) AwaitReady(ctx context.Context) (string, error) {
	within := cmp.Or(p.spec.ReadyTimeout, 30*time.Second)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case line := <-p.ready:
		return line, nil
	case <-p.ended:
		return "", fmt.Errorf("%s ended before it was ready: %w", p.spec.Name, errors.Join(p.err, errors.New(p.LogTail(20))))
	case <-ctx.Done():
		return "", fmt.Errorf("%s is not ready: %w", p.spec.Name, ctx.Err())
	}
}

// AwaitHTTP waits until a URL, such as that of /readyz, is answered with 200.
func AwaitHTTP(ctx context.Context, client *http.Client, url string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(answer.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", url, errors.Join(ctx.Err(), err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// WriteLine writes a line to the standard input of the process.
func (p *Process) WriteLine(line string) error {
	_, err := io.WriteString(p.input, line+"\n")
	return err
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err waits for the end of the process and returns the error of exec.Cmd.Wait.
func (p *Process) Err() error {
	<-p.ended
	return p.err
}

// Kill ends the process with SIGKILL and waits for its end. It does nothing to a process that has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when the process has ended
	<-p.ended
}

// Freeze stops the process where it is, until Thaw: no thread of it runs, and its connections stay open.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop asks the process to end with SIGTERM and waits for its end. A process that has not ended within the time is ended
// by SIGQUIT, or killed. The
// error says how the process ended; nil: with status 0.
func (p *Process) Stop(within time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(within):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // a Go program then writes its goroutines into the log, and ends
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
			p.Kill()
		}
		return fmt.Errorf("%s did not end within %v after SIGTERM: %w", p.spec.Name, within, p.err)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.spec.Name, p.err)
	}
	return nil
}

// LogTail returns the last lines of the process's log.
func (p *Process) LogTail(lines int) string {
	text, err := os.ReadFile(p.spec.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
