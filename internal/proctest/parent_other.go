//go:build !linux

package proctest

import "syscall"

func killWithParent() *syscall.SysProcAttr { return nil }
