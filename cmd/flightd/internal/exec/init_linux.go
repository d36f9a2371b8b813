package exec

import (
	"os"
	"os/signal"
	"syscall"
)

// RunAsInit runs the program again as a child if this process is process 1, as in a container, and returns the child's exit code.
// Process 1 inherits each process whose parent has died, and only its wait removes them: commands that leave processes behind would
// otherwise fill the container's table of processes. A wait for any child would also take the exit codes of a worker's own commands,
// so another process runs them. Signals are passed on. With isInit false, nothing was run.
func RunAsInit() (code int, isInit bool, err error) {
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
	go func() { // lives until the process ends, with the child
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
