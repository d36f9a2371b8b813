package proctest

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The ports of tests. They are below the kernel's ports for outgoing connections, so a connection cannot take one while its
// process is restarted.
const (
	firstPort = 10_000
	lastPort  = 20_000
	// PortRange is the number of consecutive ports that Ports reserves.
	PortRange = 128
)

// Ports reserves PortRange free ports of the loopback address until the test ends, and returns the first. Tests of other
// processes get other ports.
func Ports(t T) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "flightd-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	ranges := (lastPort - firstPort) / PortRange
	for n, offset := 0, rand.IntN(ranges); n < ranges; n++ {
		first := firstPort + (n+offset)%ranges*PortRange
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(first)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if tryLock(lock) && allFree(first) {
			t.Cleanup(func() { _ = lock.Close() }) // which unlocks it
			return first
		}
		_ = lock.Close()
	}
	t.Fatal("no range of ports is free")
	return 0
}

// Address reserves a free address of the loopback interface, HOST:PORT, until the test ends. The PortRange-1 ports after it are
// reserved too.
func Address(t T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Ports(t)))
}

func allFree(first int) bool {
	for port := first; port < first+PortRange; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
