//go:build clients

package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// binaries are the programs under test, built once. If FLIGHTD_TEST_BINARY is set, that flightd is used instead of a
// build.
var binaries struct{ flightd, driver string }

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "flightd-clients")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries.flightd, binaries.driver = filepath.Join(dir, "flightd"), filepath.Join(dir, "driver")
	packages := map[string]string{binaries.flightd: "../../cmd/flightd", binaries.driver: "./godriver"}
	if given := os.Getenv("FLIGHTD_TEST_BINARY"); given != "" {
		delete(packages, binaries.flightd)
		binaries.flightd = given
	}
	for path, pkg := range packages {
		build := exec.Command("go", "build", "-o", path, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // like the release
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

// environment returns this process's environment without flightd's settings, and with the given ones.
func environment(more ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "FLIGHTD_") && !strings.HasPrefix(e, "XDG_STATE_HOME=") {
			env = append(env, e)
		}
	}
	return append(env, more...)
}

// server is one flightd with its data directory, over all restarts.
type server struct {
	t      testing.TB
	data   string
	flags  []string // besides those that every server has
	access *access  // nil: plain HTTP without a token

	mu   sync.Mutex // guards the fields below
	cmd  *exec.Cmd
	url  string // "" while flightd is not running
	stop func() // of what was started beside cmd
}

// newServer starts a flightd that is killed at the end of the test.
func newServer(t testing.TB) *server { t.Helper(); return startServer(t, secure) }

// startServer starts a flightd, with TLS and a token or without, and with further flags. It is killed at the end of the
// test.
func startServer(t testing.TB, secure bool, flags ...string) *server {
	t.Helper()
	h := &server{t: t, data: filepath.Join(t.TempDir(), "data"), flags: flags}
	if secure {
		h.access = newAccess(t, h.data)
	}
	h.start()
	t.Cleanup(func() {
		h.kill()
		if text, err := os.ReadFile(h.data + ".log"); t.Failed() && err == nil {
			t.Logf("end of flightd's log:\n%s", text[max(0, len(text)-logTail):])
		}
	})
	return h
}

// logTail is the number of bytes of flightd's log that a failed test prints.
const logTail = 4 << 10

func (s *server) start() {
	s.t.Helper()
	var cmd *exec.Cmd
	var url string
	stop := func() {}
	if s.access == nil {
		cmd, url = s.startProcess("dev", "--data", s.data, "--listen", "127.0.0.1:0")
	} else {
		cmd, url, stop = s.startServe()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.url, s.stop = cmd, url, stop
}

// startProcess starts flightd, and returns the address that it prints.
func (s *server) startProcess(args ...string) (cmd *exec.Cmd, url string) {
	s.t.Helper()
	cmd = exec.Command(binaries.flightd, append(args, s.flags...)...)
	cmd.Env, cmd.SysProcAttr = environment(), killWithParent()
	log, err := os.OpenFile(s.data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(s.t, err)
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		text, _ := os.ReadFile(s.data + ".log")
		s.t.Fatalf("flightd did not start: %v\n%s", err, text)
	}
	return cmd, strings.TrimSpace(line)
}

// kill kills flightd with SIGKILL and waits for its end.
func (s *server) kill() {
	s.mu.Lock()
	cmd, stop := s.cmd, s.stop
	s.cmd, s.url = nil, ""
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		stop()
	}
}

// freeze stops flightd by SIGSTOP for d.
func (s *server) freeze(d time.Duration) {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	require.NoError(s.t, cmd.Process.Signal(syscall.SIGSTOP))
	<-time.After(d)
	require.NoError(s.t, cmd.Process.Signal(syscall.SIGCONT))
}

// resetData kills flightd, deletes its data and starts it again, as another deployment.
func (s *server) resetData() {
	s.t.Helper()
	s.kill()
	require.NoError(s.t, os.RemoveAll(s.data))
	if s.access != nil {
		require.NoError(s.t, os.Remove(s.access.tokenFile))
	}
	s.start()
}

func (s *server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// flight reads a flight from the server without the proxy. The state of an unknown flight is "".
func (s *server) flight(key string) (f wire.Flight) {
	s.t.Helper()
	id := flight.MustKey(key).FlightID().String()
	answer, err := s.request(http.MethodGet, "/v1/flights/"+id, "")
	require.NoError(s.t, err)
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		require.NoError(s.t, json.NewDecoder(answer.Body).Decode(&f))
	}
	return f
}

// waitFlight waits until the condition holds for a flight.
func (s *server) waitFlight(key, what string, within time.Duration, holds func(wire.Flight) bool) wire.Flight {
	s.t.Helper()
	var f wire.Flight
	eventually(s.t, key+" "+what, within, func() bool { f = s.flight(key); return holds(f) })
	return f
}

// waitTimeout is far longer than any wait in these tests takes, even on a busy machine.
const waitTimeout = 40 * time.Second

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, within time.Duration, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
