//go:build clients

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
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

// server is one flightd with its data directory, over all restarts, or a cluster of several.
type server struct {
	t      testing.TB
	data   string
	log    string    // the file of its log
	args   []string  // of a flightd that needs no token
	access *access   // nil: plain HTTP without a token
	nodes  []*server // of the cluster; a lone server is its only node
	turn   atomic.Uint32

	mu      sync.Mutex        // guards the fields below; of a cluster, those of its nodes are used
	process *proctest.Process // nil while flightd is not running
	url     string            // "" while flightd is not running
}

// newServer starts a flightd, or a cluster if FLIGHTD_CLIENTS_NODES is set. It is killed at the end of the test.
func newServer(t testing.TB) *server {
	t.Helper()
	if clusterSize != "" {
		return startCluster(t, clusterSize)
	}
	return startServer(t, secure)
}

// startServer starts a flightd, with TLS and a token or without, and with further flags. It is killed at the end of the
// test.
func startServer(t testing.TB, secure bool, flags ...string) *server {
	t.Helper()
	h := &server{t: t, data: filepath.Join(t.TempDir(), "data")}
	h.log = h.data + ".log"
	h.nodes = []*server{h}
	h.args = append([]string{"dev", "--data", h.data, "--listen", "127.0.0.1:0"}, flags...)
	if secure {
		h.access = newAccess(t, h.data)
		h.args = append(h.access.serveArgs(h.data), flags...)
	}
	h.killAtEnd()
	h.start()
	return h
}

// killAtEnd kills all nodes at the end of the test. If it has failed, the end of their logs is shown.
func (s *server) killAtEnd() {
	s.t.Cleanup(func() {
		for _, node := range s.nodes {
			node.kill()
			if text, err := os.ReadFile(node.log); s.t.Failed() && err == nil {
				s.t.Logf("end of %s:\n%s", node.log, text[max(0, len(text)-logTail):])
			}
		}
	})
}

// logTail is the number of bytes of flightd's log that a failed test prints.
const logTail = 4 << 10

func (s *server) start() { s.t.Helper(); require.NoError(s.t, s.tryStart()) }

// tryStart starts flightd, and returns when it has printed its address.
func (s *server) tryStart() error {
	if s.access != nil {
		if err := s.access.initLedger(s.data); err != nil {
			return err
		}
	}
	process, err := proctest.Start(proctest.Spec{Name: "flightd", Path: binaries.flightd, Args: s.args, Env: environment(), Log: s.log, ReadyTimeout: waitTimeout})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	url, err := process.AwaitReady(s.t.Context())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = url
	return err
}

// kill kills flightd with SIGKILL and waits for its end.
func (s *server) kill() {
	s.mu.Lock()
	process := s.process
	s.process, s.url = nil, ""
	s.mu.Unlock()
	if process != nil {
		process.Kill()
	}
}

// hasEnded reports whether flightd does not run.
func (s *server) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return true
	}
	select {
	case <-s.process.Ended():
		return true
	default:
		return false
	}
}

// freeze stops flightd by SIGSTOP for d.
func (s *server) freeze(d time.Duration) {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	require.NoError(s.t, process.Freeze())
	<-time.After(d)
	require.NoError(s.t, process.Thaw())
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

// address returns the address of the node whose turn it is, also if that node is frozen, or "" if it is not running.
func (s *server) address() string {
	node := s.nodes[int(s.turn.Add(1))%len(s.nodes)]
	node.mu.Lock()
	defer node.mu.Unlock()
	return node.url
}

// flight reads a flight from the server without the proxy. The state of an unknown flight is "". It asks again while no node of a cluster
// leads: that is no answer about the flight.
func (s *server) flight(key string) (f wire.Flight) {
	s.t.Helper()
	id := flight.MustKey(key).FlightID().String()
	eventually(s.t, "an answer for "+key, waitTimeout, func() bool {
		answer, err := s.request(http.MethodGet, "/v1/flights/"+id, "")
		require.NoError(s.t, err)
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			require.NoError(s.t, json.NewDecoder(answer.Body).Decode(&f))
		}
		return answer.StatusCode < http.StatusInternalServerError
	})
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
const waitTimeout = 2 * time.Minute

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
