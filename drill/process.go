package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/internal/crashpoint"
)

// process is a child process of the drill.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string   // lines of standard output; closed at its end
	done  chan struct{} // closed after the process was waited for
	log   *os.File
}

// startProcess starts this program again. Its standard error is appended to the file log. It kills itself at the point
// crash, if that is not "".
func startProcess(binary, name, log string, crash crashpoint.Point, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: file, lines: make(chan string, 64), done: make(chan struct{})}
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = environment(crash)
	p.cmd.Stderr = file
	p.cmd.SysProcAttr = processAttributes()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the %s: %w", name, err), file.Close())
	}
	go p.readOutput(out) // ends with the process; kill and waitExit wait for it
	return p, nil
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

// readOutput reads the lines of the process until it ends, waits for it, and closes done.
func (p *process) readOutput(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.lines <- lines.Text()
	}
	close(p.lines)
	_ = p.cmd.Wait() // ProcessState has the result; Wait also closes the pipes
	_ = p.log.Close()
	close(p.done)
}

// readLine returns the next line of output. The result is false after the last one.
func (p *process) readLine(ctx context.Context) (string, bool, error) {
	select {
	case l, ok := <-p.lines:
		return l, ok, nil
	case <-ctx.Done():
		return "", false, fmt.Errorf("no output from the %s: %w", p.name, context.Cause(ctx))
	}
}

// sendKill sends SIGKILL and does not wait. The process flushes nothing and runs no deferred call.
func (p *process) sendKill() { _ = p.cmd.Process.Kill() }

// kill sends SIGKILL, discards the unread output, and waits for the end.
func (p *process) kill() {
	p.sendKill()
	for range p.lines {
	}
	<-p.done
}

// waitExit waits for the end of a process that exits by itself.
func (p *process) waitExit(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the %s did not exit: %w", p.name, context.Cause(ctx))
	}
}

// wasKilled reports whether a process that has ended was killed by SIGKILL.
func (p *process) wasKilled() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// callerProcess is a caller process and the messages read from it.
type callerProcess struct {
	*process
	messages []message
}

// readUntil reads messages until one matches. The result is false if the caller ended first.
func (p *callerProcess) readUntil(ctx context.Context, match func(message) bool) (bool, error) {
	for {
		text, ok, err := p.readLine(ctx)
		if err != nil || !ok {
			return false, err
		}
		var l message
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return false, fmt.Errorf("the %s wrote an invalid message %q: %w", p.name, text, err)
		}
		p.messages = append(p.messages, l)
		if match(l) {
			return true, nil
		}
	}
}

// readAll reads all messages and waits for the caller's end.
func (p *callerProcess) readAll(ctx context.Context) error {
	if _, err := p.readUntil(ctx, func(message) bool { return false }); err != nil {
		return err
	}
	return p.waitExit(ctx)
}

// resume ends the pause of a caller.
func (p *callerProcess) resume() error {
	_, err := io.WriteString(p.in, "\n")
	return err
}

// killAndRead kills the caller and reads the messages that it wrote before.
func (p *callerProcess) killAndRead(ctx context.Context) error {
	p.sendKill()
	return p.readAll(ctx)
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

// startTimeout limits the start of a process.
const startTimeout = 20 * time.Second

// startServerProcess starts a process that writes its address as its first line, and returns that address.
func startServerProcess(ctx context.Context, binary, name, log string, crash crashpoint.Point, args ...string) (*process, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := startProcess(binary, name, log, crash, args...)
	if err != nil {
		return nil, "", err
	}
	address, ok, err := p.readLine(ctx)
	if err != nil || !ok {
		p.kill()
		return nil, "", errors.Join(fmt.Errorf("the %s did not start; see the log %s", name, log), err)
	}
	return p, address, nil
}
