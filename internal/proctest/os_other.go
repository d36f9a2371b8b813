//go:build !linux

package proctest

import (
	"os"
	"syscall"
)

func killWithParent() *syscall.SysProcAttr { return nil }

func tryLock(*os.File) bool { return true }
