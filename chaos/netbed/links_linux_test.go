package netbed

import (
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// knock sends a datagram from a host to an address.
func (h *Host) knock(t *testing.T, to net.Addr) {
	t.Helper()
	require.NoError(t, h.Do(func() error {
		c, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("knock"))
		return err
	}))
}

// A link is cut in one direction, in both, or for one port; the other links work.
func TestBed_CutLinks(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft: ", err)
	}
	b := newBed(t, "a", "b", "c")
	hostA, hostB, hostC := b.Host("a"), b.Host("b"), b.Host("c")
	var addresses []string
	for _, port := range []int{7000, 7001} {
		l, err := hostB.Listen(port)
		require.NoError(t, err)
		serveHello(t, l)
		addresses = append(addresses, l.Addr().String())
	}
	var datagrams net.PacketConn
	require.NoError(t, hostB.Do(func() (err error) {
		datagrams, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(hostB.Address, 7002)))
		return err
	}))
	defer datagrams.Close()
	arrives := func(from *Host) bool {
		from.knock(t, datagrams.LocalAddr())
		require.NoError(t, datagrams.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
		_, _, err := datagrams.ReadFrom(make([]byte, 10))
		return err == nil
	}
	reaches := func(from *Host, address string) bool { return from.dial(address, 300*time.Millisecond) == nil }
	require.True(t, reaches(hostA, addresses[0]))
	require.True(t, arrives(hostA))

	require.NoError(t, b.CutLinks(Link{From: hostB, To: hostA}))
	require.True(t, arrives(hostA), "the other direction works")
	require.False(t, reaches(hostA, addresses[0]), "no answer comes back")
	require.True(t, reaches(hostC, addresses[0]))
	require.NoError(t, b.HealLinks())

	require.NoError(t, b.CutLinks(BothWays(hostA, hostB)...))
	require.False(t, arrives(hostA))
	require.False(t, reaches(hostA, addresses[0]))
	require.NoError(t, b.HealLinks(BothWays(hostA, hostB)...))
	require.True(t, arrives(hostA))

	require.NoError(t, b.CutLinks(Link{From: hostA, To: hostB, Port: 7000}))
	require.False(t, reaches(hostA, addresses[0]))
	require.True(t, reaches(hostA, addresses[1]), "another port works")
	require.NoError(t, b.HealLinks())
	require.True(t, reaches(hostA, addresses[0]))
}
