package proctest

import (
	"os"
	"syscall"
)

// KillWithParent returns the attributes of a process that the kernel kills when the thread that started it dies. The threads that Go starts processes
// on live as long as the program, unless a goroutine has locked its thread and exits.
func KillWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// tryLock locks a file until it is closed or the process ends. It reports whether no other process has locked it.
func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
