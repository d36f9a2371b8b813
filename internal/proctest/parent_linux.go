package proctest

import "syscall"

// killWithParent makes the kernel kill the process when the thread that started it dies. The threads that Go starts processes
// on live as long as the program, unless a goroutine has locked its thread and exits.
func killWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
