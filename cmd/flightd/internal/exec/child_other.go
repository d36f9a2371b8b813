//go:build !linux

package exec

import "syscall"

// parentDeathSignal reports whether the kernel kills the command when this process dies.
const parentDeathSignal = false

func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// hasExited is not known here before the child was waited for.
func hasExited(int) bool { return false }
