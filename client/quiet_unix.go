//go:build unix

package client

import (
	"net"
	"syscall"
)

// quiet reports whether an idle connection has nothing to say. One that has was closed, or has an answer that nobody waits
// for, and that would be taken for that of the next request.
func quiet(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		quiet = err == syscall.EAGAIN
	})
	return quiet && err == nil
}
