package netbed

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newBed(t *testing.T, names ...string) *Bed {
	t.Helper()
	b, err := New(names...)
	if errors.Is(err, ErrPermission) && os.Geteuid() != 0 {
		t.Skip("needs root: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	l, err := b.hosts[0].Listen(1)
	require.NoError(t, err)
	serveHello(t, l)
	for _, h := range b.hosts { // the kernel takes its time to bring the links up
		require.NoError(t, h.dial(l.Addr().String(), limit), h.Name)
	}
	return b
}

// dial connects from a host, and reports whether it gets the greeting of serveHello.
func (h *Host) dial(address string, timeout time.Duration) error {
	return h.Do(func() error { return dial(address, timeout) })
}

func dial(address string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 2))
	return err
}

func serveHello(t *testing.T, l net.Listener) {
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hi"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
}

// Hosts reach each other and nothing else.
func TestBed(t *testing.T) {
	b := newBed(t, "server", "client", "other")
	l, err := b.Host("server").Listen(7000)
	require.NoError(t, err)
	serveHello(t, l)
	address := l.Addr().String()
	for _, name := range []string{"server", "client", "other"} {
		require.NoError(t, b.Host(name).dial(address, limit), name)
	}
	require.Error(t, dial(address, moment), "the machine itself has no way into the network")
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveHello(t, outside)
	require.Error(t, b.Host("client").dial(outside.Addr().String(), moment), "a host has no way out")
}

// A process runs on its host.
func TestHost_Start(t *testing.T) {
	b := newBed(t, "one", "two")
	cmd := exec.Command("cat", "/proc/net/fib_trie")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, b.Host("two").Start(cmd))
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(text), "10.77.0.2")
	require.NotContains(t, string(text), "10.77.0.1\n")
}
