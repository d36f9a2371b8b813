//go:build !linux

package exec

// RunAsInit runs nothing: containers run Linux.
func RunAsInit() (code int, isInit bool, err error) { return 0, false, nil }
