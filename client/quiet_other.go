//go:build !unix

package client

import "net"

// quiet cannot be told here without reading: what came behind an answer is noticed only where it came with it.
func quiet(net.Conn) bool { return true }
