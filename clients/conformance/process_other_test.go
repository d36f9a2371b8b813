//go:build clients && !linux

package conformance

import "syscall"

// killWithParent leaves the process to the test's clean-up.
func killWithParent() *syscall.SysProcAttr { return nil }
