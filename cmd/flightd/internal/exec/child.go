package exec

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// child is the command that exec runs. It has its own process group, which is killed when this process dies: an orphan
// would act at the same time as the next attempt.
type child struct {
	cmd         *exec.Cmd
	parentWatch *parentWatch
	done        chan struct{} // closed when the command has ended and its group is gone; end may be read then
	end         childEnd

	mu           sync.Mutex     // guards all below; it is held while a signal is sent
	reaped       bool           // the command was waited for, so its process group id may belong to another program
	terminatedAt time.Time      // when terminate was called; zero: never
	cutBy        syscall.Signal // the first signal that may have ended the command, sent while it ran; 0: none
}

// childEnd is how a command ended.
type childEnd struct {
	code     int            // exit code
	signal   syscall.Signal // signal that killed the command; 0 means that it exited
	timedOut bool           // this process ended the command because its attempt took too long
	cutBy    syscall.Signal // first signal by which this process ended the command; 0 means none
	err      error          // error of waiting for the command
}

// childSpec describes the command to start.
type childSpec struct {
	argv     []string
	env      []string
	stdin    io.Reader // nil: empty
	out, err io.Writer
}

// outputDelay is how long to read on after the command has ended, while a process that it started keeps its pipes open.
const outputDelay = 2 * time.Second

// startChild starts a command. If it returns an error, nothing was started.
func startChild(spec childSpec) (*child, error) {
	cmd := exec.Command(spec.argv[0], spec.argv[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // the user has . in PATH; a shell would run the program, too
	}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.env, spec.stdin, spec.out, spec.err
	cmd.SysProcAttr = ChildAttributes()
	cmd.WaitDelay = outputDelay
	leash, err := newParentWatch()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, parentWatch: leash, done: make(chan struct{})}
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		leash.stop()
		return nil, err
	}
	return c, nil
}

// run starts the command, waits for it and closes c.done. It is a goroutine of its own, locked to its thread: Linux
// sends the parent-death signal when the thread that started the child dies. If this process dies anywhere in here, the
// kernel and parentWatch kill the command.
func (c *child) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	if err != nil {
		started <- err
		return
	}
	c.parentWatch.watchGroup(c.cmd.Process.Pid)
	started <- nil
	err = c.cmd.Wait()
	c.end = endOf(c.cmd.ProcessState, err)
	c.mu.Lock()
	c.reaped, c.end.cutBy = true, c.cutBy
	terminatedAt := c.terminatedAt
	c.mu.Unlock()
	if c.end.cutBy != 0 || c.end.signal != 0 {
		endGroup(c.cmd.Process.Pid, terminatedAt)
	}
	c.parentWatch.stop()
	close(c.done)
}

// endGroup ends the processes that a command left in its group when it was cut short; they would act at the same time
// as the next attempt. They get the rest of killGrace, then SIGKILL. Processes that outlive a command which ended by
// itself are not touched.
//
// The command was waited for, so only its group keeps the number in use. The group is polled every groupPollEvery, too
// often for the number to be reused between two polls.
func endGroup(group int, terminatedAt time.Time) {
	if terminatedAt.IsZero() {
		terminatedAt = time.Now()
		_ = syscall.Kill(-group, syscall.SIGTERM)
	}
	ticker := time.NewTicker(groupPollEvery)
	defer ticker.Stop()
	var signal syscall.Signal // 0 only tests whether the group exists
	for !errors.Is(syscall.Kill(-group, signal), syscall.ESRCH) && time.Since(terminatedAt) < killGrace+reapTimeout {
		<-ticker.C
		if time.Since(terminatedAt) >= killGrace {
			signal = syscall.SIGKILL
		}
	}
}

const (
	groupPollEvery = 10 * time.Millisecond // between two tests whether the group is empty
	reapTimeout    = time.Second           // how long to wait for killed processes that their parent has not reaped
)

// endOf converts the result of exec.Cmd.Wait.
func endOf(state *os.ProcessState, err error) childEnd {
	if err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, exec.ErrWaitDelay) {
		return childEnd{code: cli.ExitFailed, err: err}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return childEnd{code: signalBase + int(status.Signal()), signal: status.Signal()}
	}
	return childEnd{code: state.ExitCode()}
}

const (
	signalBase = 128 // added by shells to the number of the signal that ended a program
	lastSignal = 64
)

// send sends a signal to the command's process group, unless the command has ended. A signal that may end the command is
// recorded: the exit code proves nothing any more, since the signal may have hit a process of the group in the middle of the
// effect. A command that ends by itself between the test and the signal counts as cut short, too.
func (c *child) send(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendLocked(s)
}

func (c *child) sendLocked(s syscall.Signal) {
	if c.reaped || hasExited(c.cmd.Process.Pid) {
		return
	}
	if s != syscall.SIGSTOP && s != syscall.SIGCONT {
		c.cutBy = cmp.Or(c.cutBy, s)
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, s) // it may have just ended
}

// terminate sends SIGTERM to the group, once, unless the command has ended.
func (c *child) terminate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminatedAt.IsZero() {
		c.terminatedAt = time.Now()
		c.sendLocked(syscall.SIGTERM)
	}
}

// killGrace is the time between SIGTERM and SIGKILL.
const killGrace = 5 * time.Second

// wait waits for the command. When ctx ends, it sends SIGTERM, and SIGKILL after killGrace.
func (c *child) wait(ctx context.Context) childEnd {
	select {
	case <-c.done:
		return c.end
	case <-ctx.Done():
	}
	c.terminate()
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.send(syscall.SIGKILL)
		<-c.done
	}
	return c.end
}

// parentWatch is a shell process that kills the command's group when this process dies, even by SIGKILL. It also kills
// the processes that the command has started, which the parent-death signal does not reach. It reads a pipe whose write
// end only this process holds.
type parentWatch struct {
	process *exec.Cmd
	pipe    io.WriteCloser
}

// parentWatchScript reads the group id, then a second line. If the pipe closes before the second line, the parent is
// dead.
const parentWatchScript = `read -r group || exit 0; read -r word && exit 0; kill -s KILL -- "-$group"`

func newParentWatch() (*parentWatch, error) {
	w := &parentWatch{process: exec.Command("/bin/sh", "-c", parentWatchScript)}
	w.process.Env = []string{}
	w.process.Dir = "/"
	w.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := w.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := w.process.Start(); err != nil {
		if parentDeathSignal && errors.Is(err, os.ErrNotExist) {
			return &parentWatch{}, nil // no shell: the kernel still kills the command itself
		}
		return nil, err
	}
	w.pipe = pipe
	return w, nil
}

// watchGroup writes the id of the group to kill.
func (w *parentWatch) watchGroup(group int) {
	if w.pipe != nil {
		_, _ = io.WriteString(w.pipe, strconv.Itoa(group)+"\n") // fails only if the watcher is dead
	}
}

// stop ends the watcher without killing the group, and waits for it.
func (w *parentWatch) stop() {
	if w.pipe == nil {
		return
	}
	_, _ = io.WriteString(w.pipe, "0\n0\n")
	_ = w.pipe.Close()
	_ = w.process.Wait()
}
