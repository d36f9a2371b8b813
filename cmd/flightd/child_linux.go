package main

import "syscall"

// parentDeathSignal reports whether the kernel kills the command when this process dies.
const parentDeathSignal = true

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
