package exec

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// parentDeathSignal reports whether the kernel kills the command when this process dies.
const parentDeathSignal = true

func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// hasExited reports whether a child of this process has exited, before or after it was waited for.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == unix.ECHILD || err == nil && info.Signo != 0
}
