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

// process is another program of the drill, which it starts, listens to and kills.
type process struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string   // of its standard output; closed at its end
	done  chan struct{} // closed when it is home
	log   *os.File
}

// start starts a process of this program. What it says on standard error is appended to the file log. crash is where
// it kills itself; "" for nowhere.
func start(binary, name, log string, crash crashpoint.Point, args ...string) (*process, error) {
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
	go p.live(out)
	return p, nil
}

// environment is this process's without the settings of flightd, which the drill gives by itself.
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

// live listens to the process until it is home.
func (p *process) live(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.lines <- lines.Text()
	}
	close(p.lines)
	_ = p.cmd.Wait() // how it ended is in its state; it closes the pipes
	_ = p.log.Close()
	close(p.done)
}

// line gives the next line that the process says; false when it says no more.
func (p *process) line(ctx context.Context) (string, bool, error) {
	select {
	case l, ok := <-p.lines:
		return l, ok, nil
	case <-ctx.Done():
		return "", false, fmt.Errorf("the %s said nothing: %w", p.name, context.Cause(ctx))
	}
}

// signal sends a SIGKILL; nothing is flushed, no deferred call runs.
func (p *process) signal() { _ = p.cmd.Process.Kill() }

// kill sends a SIGKILL and waits for the end.
func (p *process) kill() {
	p.signal()
	for range p.lines { // what it said before is of no interest to whoever kills it this way
	}
	<-p.done
}

// home waits for the end of a process that ends by itself.
func (p *process) home(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the %s does not end: %w", p.name, context.Cause(ctx))
	}
}

// wasKilled reports whether a process that is home died by SIGKILL.
func (p *process) wasKilled() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// voice is a caller's process and what it has said.
type voice struct {
	*process
	said []line
}

// hear reads the caller's words until one of them fits, or it has ended: then it answers false.
func (v *voice) hear(ctx context.Context, fits func(line) bool) (bool, error) {
	for {
		text, ok, err := v.line(ctx)
		if err != nil || !ok {
			return false, err
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return false, fmt.Errorf("the %s said %q: %w", v.name, text, err)
		}
		v.said = append(v.said, l)
		if fits(l) {
			return true, nil
		}
	}
}

// hearAll reads the caller's words until it has ended.
func (v *voice) hearAll(ctx context.Context) error {
	if _, err := v.hear(ctx, func(line) bool { return false }); err != nil {
		return err
	}
	return v.home(ctx)
}

// resume lets a caller go on that stands at a point.
func (v *voice) resume() error {
	_, err := io.WriteString(v.in, "\n")
	return err
}

// killAndHear kills the caller and reads what it had said before.
func (v *voice) killAndHear(ctx context.Context) error {
	v.signal()
	return v.hearAll(ctx)
}

// end is how the caller ended: "" when it was killed.
func (v *voice) end() (end, cause string) {
	for _, l := range v.said {
		if l.End != "" {
			return l.End, l.Error
		}
	}
	return "", ""
}

// results are what Do gave it.
func (v *voice) results() []Outcome {
	var all []Outcome
	for _, l := range v.said {
		if l.Result != nil {
			all = append(all, *l.Result)
		}
	}
	return all
}

// failed are the attempts that it held and did not bring to a success: those that ended with an error, and, where it
// was killed, those whose report was not answered.
func (v *voice) failed() []uint32 {
	var given, wrong []uint32
	reported := map[uint32]bool{}
	for _, l := range v.said {
		switch l.Point {
		case crashpoint.AfterOpen:
			given = append(given, l.Attempt)
		case crashpoint.BeforeReport:
			if l.Error != "" {
				wrong = append(wrong, l.Attempt)
				reported[l.Attempt] = true
			}
		case crashpoint.AfterReport:
			reported[l.Attempt] = true
		}
	}
	if end, _ := v.end(); end == "" {
		for _, n := range given {
			if !reported[n] {
				wrong = append(wrong, n)
			}
		}
	}
	return wrong
}

// startPatience bounds the start of a process.
const startPatience = 20 * time.Second

// startServing starts a process that says its address in its first line.
func startServing(ctx context.Context, binary, name, log string, crash crashpoint.Point, args ...string) (*process, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	p, err := start(binary, name, log, crash, args...)
	if err != nil {
		return nil, "", err
	}
	address, ok, err := p.line(ctx)
	if err != nil || !ok {
		p.kill()
		return nil, "", errors.Join(fmt.Errorf("the %s did not start; its log is %s", name, log), err)
	}
	return p, address, nil
}
