//go:build clients

package conformance

import "syscall"

// killWithParent makes the kernel kill the child process when the test process dies.
func killWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
