//go:build clients

package conformance

import "syscall"

// dieWithUs ends a process with the test, also where that is killed.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
