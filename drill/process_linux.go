package drill

import "syscall"

// processAttributes returns attributes for the drill's child processes. They do not receive the terminal's signals,
// because the drill ends them itself, and the kernel kills them if the drill dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
