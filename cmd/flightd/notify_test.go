package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/internal/proctest"
)

// TestDev_TellsItsSupervisor: READY=1 is sent once the node answers, WATCHDOG=1 while it is alive, STOPPING=1 when it stops.
func TestDev_TellsItsSupervisor(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "notify") // a socket's path must be short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	receive := func() string {
		t.Helper()
		message := make([]byte, 4096)
		_ = socket.SetReadDeadline(time.Now().Add(limit))
		n, err := socket.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	s := &server{t: t, data: filepath.Join(t.TempDir(), "data"), address: proctest.Address(t), state: t.TempDir()}
	s.start("NOTIFY_SOCKET="+filepath.Join(dir, "s"), "WATCHDOG_USEC=300000")
	defer s.kill()
	said := receive()
	require.True(t, strings.HasPrefix(said, "READY=1\n"), "it said %q", said)
	require.Contains(t, said, s.url(), "it said %q", said)
	require.Equal(t, http.StatusOK, s.get("/readyz", nil), "it said %q", said)
	said = receive()
	require.Equal(t, "WATCHDOG=1", said)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	for said == "WATCHDOG=1" {
		said = receive()
	}
	require.Equal(t, "STOPPING=1", said, "it said %q", said)
	err = s.cmd.Wait()
	require.NoError(t, err)
	s.cmd = nil
}

// TestDev_WithoutSupervisor: no supervisor is not an error; an unreachable one is reported.
func TestDev_WithoutSupervisor(t *testing.T) {
	var talk strings.Builder
	t.Setenv("NOTIFY_SOCKET", "")
	a := &cli.App{Terminal: cli.Terminal{Err: &talk}}
	notifySupervisor(a, "READY=1")
	require.Zero(t, talk.Len(), "said %q", talk.String())
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), "@flightd-test-nobody"} {
		talk.Reset()
		t.Setenv("NOTIFY_SOCKET", name)
		if notifySupervisor(a, "READY=1"); !strings.Contains(talk.String(), "supervisor") {
			t.Errorf("%s: said %q", name, talk.String())
		}
	}
}
