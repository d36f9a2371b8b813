package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flightd/flightd/internal/clock"
)

// A connection between members of etcd ends when its other end has acknowledged nothing for memberSilence. When nothing is sent, the
// kernel asks the other end after memberIdle; an open stream carries a message at least every 1.7 s.
const (
	memberSilence = 3 * time.Second
	memberIdle    = 2 * time.Second
)

// endSilentConnections sets both limits for the connections of this node's member to the others, until ctx ends. It looks for new
// connections once a second. A process that dies leaves nothing to repair.
//
// etcd means to end a stream that has carried nothing for 5 s, and to dial again. In fact it sets no such limit:
// transport.NewTimeoutTransport sets http.Transport.Dial, but NewTransport has set DialContext, which net/http prefers. After a
// cut of the network both ends keep the stream, and TCP has doubled the time between two retransmissions again and again. So the
// members elect no leader for up to as long after the cut as it has lasted. etcd offers no way to set options of its sockets,
// therefore they are found in /proc.
func (c *cluster) endSilentConnections(ctx context.Context) error {
	own, others := c.etcdPorts()
	for {
		connections, err := memberConnections(own, others)
		if err != nil {
			c.log.Warn("looking for etcd's connections failed; it is retried", "error", err)
		}
		for _, fd := range connections {
			if silence, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || silence != 0 {
				continue // the connection was closed meanwhile, or its limits are set
			}
			for _, option := range []struct{ level, name, value int }{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(memberIdle.Seconds())},
				{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
				{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(memberSilence.Milliseconds())}, // the last one: it says that all are set
			} {
				_ = unix.SetsockoptInt(fd, option.level, option.name, option.value) // it fails for a closed connection only
			}
		}
		if !clock.Sleep(ctx, time.Second) {
			return nil
		}
	}
}

// etcdPorts returns the port of this node's member and those of the others.
func (c *cluster) etcdPorts() (own int, others []int) {
	for _, node := range c.founding.Nodes {
		_, port, _ := net.SplitHostPort(node.Etcd) // the addresses of a founding are valid
		number, _ := strconv.Atoi(port)
		if node.Name == c.name() {
			own = number
		} else {
			others = append(others, number)
		}
	}
	return own, others
}

// memberConnections returns the descriptors of all TCP connections of this process that came in at port own, or went out to one of
// the ports others.
//
// A descriptor may be closed and used again before the caller uses it: then another connection gets the limits of silence, which a
// connection to a living host survives, or the call fails. A duplicate of the descriptor would prevent that, but the close of a
// duplicate of a file ends the locks of the ledger.
func memberConnections(own int, others []int) (connections []int, err error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			return nil, fmt.Errorf("/proc/self/fd: unknown name %q", name)
		}
		remote, err := unix.Getpeername(fd)
		if err != nil { // it is no socket, or is not connected
			continue
		}
		if local, err := unix.Getsockname(fd); err == nil && (portOf(local) == own || slices.Contains(others, portOf(remote))) {
			connections = append(connections, fd)
		}
	}
	return connections, nil
}

// portOf returns the port of a TCP address; 0: it is an address of another kind.
func portOf(address unix.Sockaddr) int {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	default:
		return 0
	}
}
