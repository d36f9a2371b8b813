package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/client"
)

// passSignals hands this process's signals to the command while it runs. Before that they end the wait, after it the
// report of its outcome, which then waits on disk. Those that are ignored stay ignored: a command under nohup is not to be
// ended in mid-effect because somebody logs out. Nobody reading our output any more is no reason to die in mid-effect.
func (e *execution) passSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGPIPE)
	if passed := heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP); len(passed) > 0 {
		signal.Notify(signals, passed...)
	}
	quit, home := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(home)
		for {
			select {
			case s := <-signals:
				e.pass(s, cancel)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(quit)
		<-home
	}
}

func (e *execution) pass(s os.Signal, cancel context.CancelCauseFunc) {
	number, ok := s.(syscall.Signal)
	switch {
	case !ok || number == syscall.SIGPIPE:
	case number == syscall.SIGTSTP:
		e.suspend()
	case e.heed(number, cancel):
		gone, now := context.WithCancel(context.Background())
		now()
		_ = e.client.Close(gone) // what is not reported by now stays on disk
	}
}

// heed does what a signal is about. It answers whether whoever sent it has waited long enough for the report.
func (e *execution) heed(s syscall.Signal, cancel context.CancelCauseFunc) (enough bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.client != nil && (e.end != nil || e.landed):
		return e.hurryLocked(s)
	case e.child != nil:
		e.ended = e.ended || s != syscall.SIGUSR1 && s != syscall.SIGUSR2
		e.child.send(s)
	default:
		e.called = s
		cancel(&coded{code: signalBase + int(s), err: fmt.Errorf("%v: gave up waiting; nothing was started here", s)})
	}
	return false
}

// hurryLocked is about a signal that came when the command had ended. Who sent it may not know that; so the first one is
// answered with a word, and the next one is an order.
func (e *execution) hurryLocked(s syscall.Signal) (enough bool) {
	switch {
	case s == syscall.SIGUSR1 || s == syscall.SIGUSR2:
		return false // they were for the command
	case e.landed || e.told:
		return true
	}
	e.told = true
	e.app.say("%s: the command has ended (exit %d), and its outcome is on its way to flightd; "+
		"another signal ends this: the outcome then waits on disk for the next flightd command that reaches a server", e.at.Key(), e.end.code)
	return false
}

// connected says that there is a client, whose reports can be cut short.
func (e *execution) connected(c *client.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client = c
}

// reported says that nothing is left to be reported from here.
func (e *execution) reported() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.landed = true
}

// suspend stops the command and this process, as a person at a terminal expects of Ctrl-Z, until this process is told to
// continue. The command must not go on alone: nobody renews its claim meanwhile, and another attempt may be opened. For
// the same reason it is stopped by a signal that it cannot refuse, and none is started in here.
func (e *execution) suspend() {
	if !suspendable() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	running := e.child != nil && e.end == nil
	if running {
		e.child.send(syscall.SIGSTOP)
		e.app.say("%s: stopped together with its command; the claim on the key outlives that by less than %v (--ttl)", e.at.Key(), e.flags.ttl)
	}
	stopSelf()
	if running {
		e.continueLocked()
	}
}

// continueLocked lets the command go on. One that is to be killed when its claim is lost must not act any more: it is told to
// end before.
func (e *execution) continueLocked() {
	if e.flags.leaseLost.value == "kill" && e.at.Sending() != nil {
		e.kill(errLeaseLost)
		e.child.tell()
	}
	e.child.send(syscall.SIGCONT)
}

// suspendable reports whether there is a shell that could continue what is stopped here. The kernel asks the same before it
// heeds a terminal's stop signal, but not for those who listen to it.
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
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // another thread may be the first that stops, and this one come to the next line
	<-continued
}
