package node

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Each of the three members has two streams from each of the others, and each stream has two ends in this process.
func TestCluster_SilentConnectionsOfEtcdEnd(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	own, others := c.nodes[0].cluster.etcdPorts()
	require.Len(t, others, 2)
	require.NotContains(t, others, own)
	option := func(fd, name int) int {
		value, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, name)
		if err != nil {
			return 0 // it was closed meanwhile
		}
		return value
	}
	require.Eventually(t, func() bool {
		connections, _ := memberConnections(own, others)
		limited := 0
		for _, fd := range connections {
			if option(fd, unix.TCP_USER_TIMEOUT) == 3000 && option(fd, unix.TCP_KEEPIDLE) == 2 && option(fd, unix.TCP_KEEPINTVL) == 1 {
				limited++
			}
		}
		return limited >= 12 // this member's end of its eight streams, and the dialing end of the four between the others
	}, waitLimit, 50*time.Millisecond)
}

func TestMemberConnections_OthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dialed, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	accepted, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _, _ = dialed.Close(), accepted.Close(), listener.Close() })
	port, client := listener.Addr().(*net.TCPAddr).Port, dialed.LocalAddr().(*net.TCPAddr).Port
	for _, want := range []struct {
		own, other, connections int
	}{{port, 1, 1}, {1, port, 1}, {port, port, 2}, {1, 2, 0}, {1, client, 1}} {
		got, err := memberConnections(want.own, []int{want.other})
		require.NoError(t, err)
		require.Len(t, got, want.connections, "%+v: the listener is none of them", want)
	}
}
