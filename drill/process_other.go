//go:build !linux

package drill

import "syscall"

// processAttributes keep the terminal's signals away from the drill's processes, which the drill ends by itself.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
