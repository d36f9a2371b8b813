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
)

// TestDev_TellsItsSupervisor: READY=1 is sent once the node answers, STOPPING=1 when it stops.
func TestDev_TellsItsSupervisor(t *testing.T) {
	dir, err := os.MkdirTemp("", "notify") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	hear := func() string {
		t.Helper()
		message := make([]byte, 4096)
		_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := socket.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	s := &server{t: t, data: filepath.Join(t.TempDir(), "data"), address: freeAddress(t), state: t.TempDir()}
	s.start(notifyEnv + "=" + filepath.Join(dir, "s"))
	defer s.kill()
	if said := hear(); !strings.HasPrefix(said, "READY=1\n") || !strings.Contains(said, s.url()) || s.get("/readyz", nil) != http.StatusOK {
		t.Errorf("it said %q", said)
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if said := hear(); said != "STOPPING=1" {
		t.Errorf("it said %q", said)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	s.cmd = nil
}

// TestDev_WithoutSupervisor: no supervisor is not an error; an unreachable one is reported.
func TestDev_WithoutSupervisor(t *testing.T) {
	var talk strings.Builder
	env := map[string]string{}
	a := &app{terminal: terminal{err: &talk, env: func(k string) string { return env[k] }}}
	a.notifySupervisor("READY=1")
	if talk.Len() > 0 {
		t.Errorf("said %q", talk.String())
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), "@flightd-test-nobody"} {
		talk.Reset()
		env[notifyEnv] = name
		if a.notifySupervisor("READY=1"); !strings.Contains(talk.String(), "supervisor") {
			t.Errorf("%s: said %q", name, talk.String())
		}
	}
}
