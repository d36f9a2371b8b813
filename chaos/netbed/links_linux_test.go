package netbed

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What arrives may take its time on a busy machine; what is lost is waited for in vain.
const limit, moment = time.Minute, 300 * time.Millisecond

// A link is cut in one direction, in both, or for one port; the other links work.
func TestBed_Impair_Cut(t *testing.T) {
	b := newBed(t, "a", "b", "c")
	hostA, hostB, hostC := b.Host("a"), b.Host("b"), b.Host("c")
	var addresses []string
	for _, port := range []int{7000, 7001} {
		l, err := hostB.Listen(port)
		require.NoError(t, err)
		serveHello(t, l)
		addresses = append(addresses, l.Addr().String())
	}
	arrives := func(from *Host, within time.Duration) bool {
		arrived, _ := stream(t, from, hostB, 1, within)
		return len(arrived) == 1
	}
	impair := func(links ...Link) *Fault {
		f, err := b.Impair(Impairment{Loss: 100}, links...)
		require.NoError(t, err)
		return f
	}
	reaches := func(from *Host, address string, within time.Duration) bool { return from.dial(address, within) == nil }
	require.True(t, reaches(hostA, addresses[0], limit))
	require.True(t, arrives(hostA, limit))

	cut := impair(Link{From: hostB, To: hostA})
	require.True(t, arrives(hostA, limit), "the other direction works")
	require.False(t, reaches(hostA, addresses[0], moment), "no answer comes back")
	require.True(t, reaches(hostC, addresses[0], limit))
	heal(t, cut)

	cut = impair(BothWays(hostA, hostB)...)
	require.False(t, arrives(hostA, moment))
	require.False(t, reaches(hostA, addresses[0], moment))
	heal(t, cut)
	require.True(t, arrives(hostA, limit))

	cut = impair(Link{From: hostA, To: hostB, Port: 7000})
	require.False(t, reaches(hostA, addresses[0], moment))
	require.True(t, reaches(hostA, addresses[1], limit), "another port works")
	require.True(t, arrives(hostA, limit), "another protocol works")
	require.Positive(t, heal(t, cut))
	require.True(t, reaches(hostA, addresses[0], limit))
}

func heal(t *testing.T, f *Fault) int {
	t.Helper()
	bites, err := f.Heal()
	require.NoError(t, err)
	return bites
}

// stream sends numbered datagrams between two hosts, calls done, which returns how many of them were lost, and returns the numbers of
// those that arrive within the time, in the order of arrival, and how long the last one took.
func stream(t *testing.T, from, to *Host, packets int, wait time.Duration, done ...func() (lost int)) (arrived []int, last time.Duration) {
	t.Helper()
	var datagrams, sender net.Conn
	require.NoError(t, to.Do(func() (err error) {
		datagrams, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Address, 7003)))
		return err
	}))
	defer datagrams.Close()
	require.NoError(t, from.Do(func() (err error) {
		sender, err = net.Dial("udp", datagrams.LocalAddr().String())
		return err
	}))
	defer sender.Close()
	start := time.Now()
	for i := range packets {
		_, err := sender.Write(append([]byte{byte(i)}, make([]byte, 99)...))
		require.NoError(t, err)
	}
	for _, f := range done {
		packets -= f()
	}
	require.NoError(t, datagrams.SetReadDeadline(time.Now().Add(wait)))
	for got := make([]byte, 100); len(arrived) < packets; arrived = append(arrived, int(got[0])) {
		if _, err := datagrams.Read(got); err != nil {
			break
		}
		last = time.Since(start)
	}
	return arrived, last
}

// Each kind of impairment harms one direction of one link, and its bites are the packets that it harmed.
func TestBed_Impair(t *testing.T) {
	b := newBed(t, "a", "b", "c")
	hostA, hostB, hostC := b.Host("a"), b.Host("b"), b.Host("c")
	link := Link{From: hostA, To: hostB}
	impair := func(how Impairment, links ...Link) *Fault {
		f, err := b.Impair(how, links...)
		require.NoError(t, err)
		return f
	}
	f := impair(Impairment{Loss: 30}, link)
	back, _ := stream(t, hostB, hostA, 200, limit)
	other, _ := stream(t, hostC, hostB, 200, limit)
	require.Len(t, slices.Concat(back, other), 400, "the other direction and other links work")
	lost := 0
	first, _ := stream(t, hostA, hostB, 200, limit, func() int {
		lost = heal(t, f)
		return lost
	})
	require.InDelta(t, 60, lost, 45)
	require.Len(t, first, 200-lost)
	require.Equal(t, lost, heal(t, f), "a healed fault keeps its bites")

	f = impair(Impairment{Delay: 100 * time.Millisecond, Jitter: 100 * time.Millisecond}, link)
	arrived, last := stream(t, hostA, hostB, 200, limit)
	require.Len(t, arrived, 200)
	require.False(t, slices.IsSorted(arrived), "packets overtake each other")
	require.Greater(t, last, 150*time.Millisecond)
	require.Equal(t, 200, heal(t, f))
	for range 2 { // a table is used again
		f = impair(Impairment{Delay: time.Hour}, link)
		arrived, _ = stream(t, hostA, hostB, 200, limit, func() int {
			require.Zero(t, heal(t, impair(Impairment{Loss: 100}, link)))
			require.Equal(t, 200, heal(t, f))
			return 0
		})
		require.Len(t, arrived, 200, "a heal delivers the packets that are held, and that of another fault loses none")
	}
	arrived, _ = stream(t, hostA, hostB, 200, limit)
	require.Len(t, arrived, 200)
}

// Faults of the same link add up, and each is healed alone.
func TestBed_Impair_Overlap(t *testing.T) {
	b := newBed(t, "a", "b")
	hostA, hostB := b.Host("a"), b.Host("b")
	impair := func(how Impairment) *Fault {
		f, err := b.Impair(how, BothWays(hostA, hostB)...)
		require.NoError(t, err)
		return f
	}
	slow, cut, slower, cutToo := impair(Impairment{Delay: 50 * time.Millisecond}), impair(Impairment{Loss: 100}), impair(Impairment{Delay: 50 * time.Millisecond}), impair(Impairment{Loss: 100})
	arrived, _ := stream(t, hostA, hostB, 100, moment)
	require.Empty(t, arrived)
	dropped := heal(t, cut)
	arrived, _ = stream(t, hostA, hostB, 100, moment)
	require.Empty(t, arrived, "the other cut goes on")
	require.Equal(t, 200, dropped+heal(t, cutToo), "one of two cuts drops a packet")
	arrived, last := stream(t, hostA, hostB, 100, limit)
	require.Len(t, arrived, 100)
	require.Greater(t, last, 100*time.Millisecond, "delays add up")
	require.GreaterOrEqual(t, heal(t, slower), 100)
	arrived, last = stream(t, hostA, hostB, 100, limit)
	require.Len(t, arrived, 100)
	require.Greater(t, last, 50*time.Millisecond)
	require.GreaterOrEqual(t, heal(t, slow), 200, "the counter of a fault that goes on is kept")
}
