//go:build !linux

package drill

import "syscall"

// processAttributes returns attributes for the drill's child processes. They do not receive the terminal's signals,
// because the drill ends them itself.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
