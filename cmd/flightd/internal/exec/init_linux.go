package exec

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// RunAsInit runs the program again as a child if this process is process 1, as in a container. It passes signals on and returns the
// child's exit code. If this is not process 1, isInit is false and RunAsInit has done nothing. Process 1 inherits orphaned processes
// and must wait for them; otherwise commands that leave processes behind would fill the container's process table. Waiting for any
// child would also take the exit codes of the worker's own commands, so the child runs the worker.
func RunAsInit(ctx context.Context) (code int, isInit bool, err error) {
	if os.Getpid() != 1 {
		return 0, false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return 0, true, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	child, err := os.StartProcess(self, os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return 0, true, err
	}
	if early := cli.TakeSignals(ctx); early != nil {
		_ = child.Signal(early)
	}
	go func() { // runs until this process ends
		for s := range signals {
			_ = child.Signal(s) // fails if the child has just ended
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, true, err
		case pid == child.Pid && status.Signaled():
			return signalBase + int(status.Signal()), true, nil
		case pid == child.Pid:
			return status.ExitStatus(), true, nil
		}
	}
}
