package main

import (
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
)

// child is the command that exec runs: in a process group of its own, which dies with this process, since an orphan
// would act beside its successor.
type child struct {
	cmd   *exec.Cmd
	leash *leash
	done  chan struct{} // closed when it is home
	end   childEnd

	mu   sync.Mutex
	gone bool      // its process group may be somebody else's by now
	told time.Time // when it was told to end; zero: never
}

// childEnd is how a command ended.
type childEnd struct {
	code   int            // its exit code
	signal syscall.Signal // what killed it, 0 when it exited by itself
	err    error          // it could not be waited for
}

// childSpec is what is run.
type childSpec struct {
	argv     []string
	env      []string
	stdin    io.Reader // nil: nothing can be read
	out, err io.Writer
}

// outputDelay is how long output is waited for when a command has ended but something that it left behind holds its
// pipes open.
const outputDelay = 2 * time.Second

// startChild starts a command. An error means that nothing of it ran.
func startChild(spec childSpec) (*child, error) {
	cmd := exec.Command(spec.argv[0], spec.argv[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // whoever has . in PATH wants it there; a shell would do the same
	}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.env, spec.stdin, spec.out, spec.err
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = outputDelay
	leash, err := newLeash()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, leash: leash, done: make(chan struct{})}
	started := make(chan error)
	go c.live(started)
	if err := <-started; err != nil {
		leash.untie()
		return nil, err
	}
	return c, nil
}

// live starts the command and waits for it on one thread, which stays until then: on Linux the parent-death signal is
// sent when the thread dies that started the child.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	if err != nil {
		started <- err
		return
	}
	c.leash.tie(c.cmd.Process.Pid)
	started <- nil
	err = c.cmd.Wait()
	c.end = ended(c.cmd.ProcessState, err)
	c.mu.Lock()
	c.gone = true
	told := c.told
	c.mu.Unlock()
	if !told.IsZero() || c.end.signal != 0 {
		clearGroup(c.cmd.Process.Pid, told)
	}
	c.leash.untie()
	close(c.done)
}

// clearGroup ends what a command that was cut short has left in its process group: the next attempt would act beside it. It
// gets what is left of the grace, then it is killed. What a command leaves running that
// ended by itself is its own affair.
//
// The command itself was waited for, so its number is the group's for as long as anybody is in it; that is looked at so
// often that it cannot go to somebody else in between.
func clearGroup(group int, told time.Time) {
	if told.IsZero() {
		told = time.Now()
		_ = syscall.Kill(-group, syscall.SIGTERM)
	}
	look := time.NewTicker(groupPause)
	defer look.Stop()
	var probe syscall.Signal // 0: is anybody there?
	for !errors.Is(syscall.Kill(-group, probe), syscall.ESRCH) && time.Since(told) < grace+burial {
		<-look.C
		if time.Since(told) >= grace {
			probe = syscall.SIGKILL
		}
	}
}

const (
	groupPause = 10 * time.Millisecond // between two looks whether a group is empty
	burial     = time.Second           // what is killed and nobody buries is not waited for any longer
)

func ended(state *os.ProcessState, err error) childEnd {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return childEnd{code: exitFailed, err: err}
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

// send passes a signal to the command's whole group.
func (c *child) send(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendLocked(s)
}

func (c *child) sendLocked(s syscall.Signal) {
	if !c.gone {
		_ = syscall.Kill(-c.cmd.Process.Pid, s) // it may have ended just now
	}
}

// tell tells the command to end, once.
func (c *child) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told.IsZero() {
		c.told = time.Now()
		c.sendLocked(syscall.SIGTERM)
	}
}

// grace is how long a command that was told to end may take before it is killed.
const grace = 5 * time.Second

// wait waits for the command. When ctx ends the command is told to end, too, and killed when it does not.
func (c *child) wait(ctx context.Context) childEnd {
	select {
	case <-c.done:
		return c.end
	case <-ctx.Done():
	}
	c.tell()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.send(syscall.SIGKILL)
		<-c.done
	}
	return c.end
}

// leash is a small process that kills the command's group when this process ends without a word: also with SIGKILL,
// and also what the command has started. It reads a pipe whose other end only this process has.
type leash struct {
	watcher *exec.Cmd
	pipe    io.WriteCloser
}

// leashScript reads the group, then waits for the word that all is well. The end of the pipe instead of that word
// means that the one who should have said it is dead.
const leashScript = `read -r group || exit 0; read -r word && exit 0; kill -s KILL -- "-$group"`

func newLeash() (*leash, error) {
	l := &leash{watcher: exec.Command("/bin/sh", "-c", leashScript)}
	l.watcher.Env = []string{}
	l.watcher.Dir = "/"
	l.watcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := l.watcher.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := l.watcher.Start(); err != nil {
		if parentDeathSignal && errors.Is(err, os.ErrNotExist) {
			return &leash{}, nil // without a shell the kernel still takes the command itself down
		}
		return nil, err
	}
	l.pipe = pipe
	return l, nil
}

// tie names the group to kill.
func (l *leash) tie(group int) {
	if l.pipe != nil {
		_, _ = io.WriteString(l.pipe, strconv.Itoa(group)+"\n") // a dead watcher cannot be helped
	}
}

// untie lets the watcher go.
func (l *leash) untie() {
	if l.pipe == nil {
		return
	}
	_, _ = io.WriteString(l.pipe, "0\n0\n")
	_ = l.pipe.Close()
	_ = l.watcher.Wait()
}
