//go:build !linux

package exec

import "context"

// RunAsInit runs nothing: containers run Linux.
func RunAsInit(context.Context) (code int, isInit bool, err error) { return 0, false, nil }
