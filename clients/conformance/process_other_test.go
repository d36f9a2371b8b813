//go:build clients && !linux

package conformance

import "syscall"

// dieWithUs leaves the process to the test's clean-up.
func dieWithUs() *syscall.SysProcAttr { return nil }
