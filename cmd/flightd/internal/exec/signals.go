package exec

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// catchSignals calls handle with each signal of this process. Ignored signals stay ignored, so that a command under nohup
// survives a logout. SIGPIPE is caught and not handled, so that a closed output does not end a running effect.
//
// main catches signals before a command does so itself, and ends ctx. catchSignals handles such an early signal first. One that arrives
// while both catch signals is handled twice, before anything was started. stop ends the goroutine and waits for it.
func catchSignals(ctx context.Context, handle func(syscall.Signal)) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGPIPE)
	if caught := cli.NotIgnored(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP); len(caught) > 0 {
		signal.Notify(signals, caught...)
	}
	if early, ok := cli.TakeSignals(ctx).(syscall.Signal); ok {
		handle(early)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok && number != syscall.SIGPIPE {
					handle(number)
				}
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-done
	}
}

// onSignal handles one signal: it is forwarded to the command while it runs. Before the start it ends the wait; after the
// command's end it ends the retries of its report, which then stays in the spool.
func (e *execution) onSignal(s syscall.Signal, cancel context.CancelCauseFunc) {
	switch {
	case s == syscall.SIGTSTP:
		e.suspend()
	case e.handleSignal(s, cancel):
		ended, end := context.WithCancel(context.Background())
		end()
		_ = e.client.Close(ended) // a report that is not stored by now stays in the spool
	}
}

// handleSignal forwards a signal, or ends the wait. enough reports that the retries of the report are to be ended.
func (e *execution) handleSignal(s syscall.Signal, cancel context.CancelCauseFunc) (enough bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.client != nil && (e.end != nil || e.reportDone):
		return e.handleSignalWhileReportingLocked(s)
	case e.child != nil:
		e.child.send(s)
	default:
		e.pendingSignal = s
		cancel(&cli.Error{Code: signalBase + int(s), Err: fmt.Errorf("%v: the wait was ended; nothing was started", s)})
	}
	return false
}

// handleSignalWhileReportingLocked handles a signal that arrives after the command's end. Its sender may not know that
// the command has ended, so the first signal only prints a message; the next one ends the retries of the report.
func (e *execution) handleSignalWhileReportingLocked(s syscall.Signal) (enough bool) {
	switch {
	case s == syscall.SIGUSR1 || s == syscall.SIGUSR2:
		return false // meant for the command
	case e.reportDone || e.warned:
		return true
	}
	e.warned = true
	e.app.Say("%s: the command has ended (exit %d), and its outcome is being reported; "+
		"another signal ends that, and the report stays on disk for the next flightd command that reaches a server", e.attempt.Key(), e.end.code)
	return false
}

// setClient stores the client whose reports a signal may cut short.
func (e *execution) setClient(c *client.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client = c
}

// setReportDone records that the outcome is stored or spooled.
func (e *execution) setReportDone() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reportDone = true
}

// suspend handles Ctrl-Z: it stops the command and this process until SIGCONT. The command must not run on alone,
// because its claim is not renewed meanwhile and another attempt may be opened. Therefore it gets SIGSTOP, which it
// cannot ignore, and e.mu is held, so that no command is started while this process is stopped.
func (e *execution) suspend() {
	if !suspendable() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	running := e.child != nil && e.end == nil
	if running {
		e.child.send(syscall.SIGSTOP)
		e.app.Say("%s: stopped together with its command; the session expires within %v (--ttl)", e.attempt.Key(), e.flags.ttl)
	}
	stopSelf()
	if running {
		e.continueLocked()
	}
}

// continueLocked continues the command. With --on-lease-lost kill, a command whose session is lost must not act any more:
// it gets SIGTERM before SIGCONT.
func (e *execution) continueLocked() {
	if e.flags.leaseLost.Value == "kill" && e.attempt.Sending() != nil {
		e.kill(errLeaseLost)
		e.child.terminate()
	}
	e.child.send(syscall.SIGCONT)
}

// suspendable reports whether a shell could continue this process after a stop. The kernel makes the same test for
// SIGTSTP, but not for processes that catch the signal.
func suspendable() bool {
	leader, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	group, err := unix.Getpgid(leader)
	return err == nil && group != unix.Getpgrp()
}

// stopSelf stops this process, and returns when it is continued.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // this thread may reach the next line before it stops
	<-continued
}
