package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/proctest"
)

// startTimeout limits the start of a process.
const startTimeout = 20 * time.Second

// processSpec describes a child process of the drill, which is this program again. It kills itself at the point crash, if that is not
// "". It does not receive the terminal's signals, because the drill ends it itself.
func processSpec(binary, name, log string, crash crashpoint.Point, args ...string) proctest.Spec {
	return proctest.Spec{Name: "the " + name, Path: binary, Args: args, Env: environment(crash), Log: log, ReadyTimeout: startTimeout,
		Start: func(cmd *exec.Cmd) error {
			cmd.SysProcAttr.Setpgid = true
			return cmd.Start()
		}}
}

// environment returns this process's environment without FLIGHTD_ variables, and with the crash point.
func environment(crash crashpoint.Point) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FLIGHTD_") {
			env = append(env, e)
		}
	}
	if crash != "" {
		env = append(env, crashpoint.Env+"="+string(crash))
	}
	return env
}

// startServerProcess starts a process that writes its address as its first line, and returns that address.
func startServerProcess(ctx context.Context, spec proctest.Spec) (*proctest.Process, string, error) {
	p, err := proctest.Start(spec)
	if err != nil {
		return nil, "", err
	}
	address, err := p.AwaitReady(ctx)
	if err != nil {
		p.Kill()
		return nil, "", fmt.Errorf("%w; see the log %s", err, spec.Log)
	}
	return p, address, nil
}

// wasKilled reports whether a process was killed by SIGKILL. It waits for its end.
func wasKilled(p *proctest.Process) bool {
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// callerProcess is a caller process and the messages read from it.
type callerProcess struct {
	*proctest.Process
	lines    chan string // of standard output
	messages []message
}

// maxLines is more than the lines that a caller writes within callTimeout: a caller is not blocked by a drill that does not read.
const maxLines = 1 << 12

func startCallerProcess(spec proctest.Spec) (p *callerProcess, err error) {
	p = &callerProcess{lines: make(chan string, maxLines)}
	spec.Line = func(line string) { p.lines <- line }
	p.Process, err = proctest.Start(spec)
	return p, err
}

// readUntil reads messages until one matches. The result is false if the caller ended first.
func (p *callerProcess) readUntil(ctx context.Context, match func(message) bool) (bool, error) {
	for {
		var text string
		select {
		case text = <-p.lines:
		case <-ctx.Done():
			return false, fmt.Errorf("no output from the caller: %w", context.Cause(ctx))
		case <-p.Ended():
			select {
			case text = <-p.lines:
			default:
				return false, nil
			}
		}
		var l message
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return false, fmt.Errorf("the caller wrote an invalid message %q: %w", text, err)
		}
		p.messages = append(p.messages, l)
		if match(l) {
			return true, nil
		}
	}
}

// readAll reads all messages and waits for the caller's end.
func (p *callerProcess) readAll(ctx context.Context) error {
	_, err := p.readUntil(ctx, func(message) bool { return false })
	return err
}

// end returns the caller's end and its error. The end is "" if the caller was killed.
func (p *callerProcess) end() (end, cause string) {
	for _, l := range p.messages {
		if l.End != "" {
			return l.End, l.Error
		}
	}
	return "", ""
}

// results returns the results that Do returned to the caller.
func (p *callerProcess) results() []Outcome {
	var all []Outcome
	for _, l := range p.messages {
		if l.Result != nil {
			all = append(all, *l.Result)
		}
	}
	return all
}

// failed returns the attempts of the caller that did not succeed: those that ended with an error and, if the caller was
// killed, those whose report was not answered.
func (p *callerProcess) failed() []uint32 {
	var opened, failed []uint32
	reported := map[uint32]bool{}
	for _, l := range p.messages {
		switch l.Point {
		case crashpoint.AfterOpen:
			opened = append(opened, l.Attempt)
		case crashpoint.BeforeReport:
			if l.Error != "" {
				failed = append(failed, l.Attempt)
				reported[l.Attempt] = true
			}
		case crashpoint.AfterReport:
			reported[l.Attempt] = true
		}
	}
	if end, _ := p.end(); end == "" {
		for _, n := range opened {
			if !reported[n] {
				failed = append(failed, n)
			}
		}
	}
	return failed
}
