package drill

import "syscall"

// processAttributes keep the terminal's signals away from the drill's processes, which the drill ends by itself, and
// end them with it where it cannot.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
