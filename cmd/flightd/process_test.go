package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
)

// program is the binary under test, built once for all tests of real processes.
var program string

func TestMain(m *testing.M) {
	if os.Getenv("FLIGHTD_TEST_PARENT") != "" || os.Getenv("FLIGHTD_TEST_SHELL") != "" {
		os.Exit(m.Run()) // a helper process of a test, which needs no binary
	}
	dir, err := os.MkdirTemp("", "flightd-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")) // isolate the tests from the user's settings
	_ = os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))   // and from the user's reports
	program = filepath.Join(dir, "flightd")
	code := 1
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// server is a `flightd dev` process, or an API in this process.
type server struct {
	t       testing.TB
	data    string
	address string // host:port, the same after every restart
	state   string // the state directory of its callers, with their spool
	flags   []string
	cmd     *exec.Cmd
	log     *lockedBuffer
	fake    bool // the API and its callers are in this process
}

// startFake starts an API on an in-memory flightd. Its commands run in this process.
func startFake(t testing.TB) (*server, *httpapitest.Fake) {
	t.Helper()
	world := httpapitest.New(t)
	api := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(api.Close)
	return &server{t: t, address: api.Listener.Addr().String(), fake: true}, world
}

// startServer starts a server on a new data directory and kills it at the end of the test.
func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, data: filepath.Join(t.TempDir(), "data"), address: proctest.Address(t), state: t.TempDir()}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start(env ...string) {
	s.t.Helper()
	s.log = new(lockedBuffer)
	s.cmd = exec.Command(program, append([]string{"dev", "--data", s.data, "--listen", s.address}, s.flags...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, s.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != s.url() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.t.Fatalf("flightd dev said %q (%v)\n%s", line, err, s.log)
	}
	status := s.get("/readyz", nil)
	require.Equal(s.t, http.StatusOK, status, "/readyz answers %d", status)
}

func (s *server) url() string { return "http://" + s.address }

// kill sends SIGKILL.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// get decodes an answer of the API.
func (s *server) get(path string, into any) int {
	s.t.Helper()
	answer, err := http.Get(s.url() + path)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	if into != nil {
		err := json.NewDecoder(answer.Body).Decode(into)
		require.NoError(s.t, err)
	}
	return answer.StatusCode
}

// flight reads one flight through the command line.
func (s *server) flight(key string) (f wire.Flight) {
	s.t.Helper()
	r := s.flightd("flights", "get", key, "-o", "json")
	if r.code != 0 {
		return f
	}
	err := json.Unmarshal([]byte(r.out), &f)
	require.NoError(s.t, err, "flights get: %v\n%s", err, r.out)
	return f
}

// result is the output and the exit code of an invocation.
type result struct {
	args     []string
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("flightd %s: exit %d\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, r.out, r.err)
}

// want checks the exit code, and that both outputs have these texts.
func (r result) want(t testing.TB, code int, out, err string) result {
	t.Helper()
	require.Equal(t, code, r.code, "%v", r)
	require.Contains(t, r.out, out, "%v", r)
	require.Contains(t, r.err, err, "%v", r)
	return r
}

// invocation is a running program.
type invocation struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err lockedBuffer
}

// begin starts the program as a client of this server.
func (s *server) begin(args ...string) *invocation {
	s.t.Helper()
	return s.beginCommand(program, args...)
}

// beginCommand starts another program with the same environment.
func (s *server) beginCommand(name string, args ...string) *invocation {
	s.t.Helper()
	return s.beginWith(nil, name, args...)
}

// beginWith also sets process attributes.
func (s *server) beginWith(attributes *syscall.SysProcAttr, name string, args ...string) *invocation {
	s.t.Helper()
	i := &invocation{t: s.t, cmd: exec.Command(name, args...)}
	i.cmd.SysProcAttr = attributes
	i.cmd.Env = append(os.Environ(), "FLIGHTD_ADDR="+s.url(), "XDG_STATE_HOME="+s.state)
	i.cmd.Stdout, i.cmd.Stderr = &i.out, &i.err
	i.cmd.WaitDelay = 5 * time.Second
	err := i.cmd.Start()
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		if i.cmd.ProcessState == nil {
			_ = i.cmd.Process.Kill()
			_ = i.cmd.Wait()
		}
	})
	return i
}

func (i *invocation) wait() result {
	err := i.cmd.Wait()
	var exit *exec.ExitError
	require.False(i.t, err != nil && !errors.As(err, &exit), "flightd %v: %v", i.cmd.Args[1:], err)
	return result{args: i.cmd.Args[1:], out: i.out.String(), err: i.err.String(), code: i.cmd.ProcessState.ExitCode()}
}

func (i *invocation) signal(s syscall.Signal) {
	i.t.Helper()
	err := i.cmd.Process.Signal(s)
	require.NoError(i.t, err)
}

// flightd runs the program as a client of this server.
func (s *server) flightd(args ...string) result {
	s.t.Helper()
	if s.fake {
		return flightd(map[string]string{"FLIGHTD_ADDR": s.url(), "XDG_CONFIG_HOME": os.Getenv("XDG_CONFIG_HOME")}, args...)
	}
	return s.begin(args...).wait()
}

// limit bounds each wait for a state of another process. It is far longer than any of them takes, also on a busy machine.
const limit = time.Minute

// Eventually waits for a condition.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	eventuallyWithin(t, limit, what, holds)
}

func eventuallyWithin(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v still not: %s", within, what)
		}
	}
}

// shop is a directory with a script that has a side effect, and the files in which the script records it.
type shop struct {
	t   testing.TB
	dir string
}

// NewShop writes pay.sh, which appends its process id to the file started, waits for the file go if wait is set, prints
// its id and the time, and appends its id to the file paid.
func NewShop(t testing.TB, wait bool) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir()}
	script := "#!/bin/sh\necho $$ >> " + s.path("started") + "\n"
	if wait {
		script += "while [ ! -e " + s.path("go") + " ]; do sleep 0.02; done\n"
	}
	script += "echo \"paid by $$ at $(date +%s%N) as $FLIGHTD_KEY, attempt $FLIGHTD_ATTEMPT\"\necho \"thank you\" >&2\necho $$ >> " + s.path("paid") + "\n"
	err := os.WriteFile(s.path("pay.sh"), []byte(script), 0o700)
	require.NoError(t, err)
	return s
}

func (s *shop) path(name string) string { return filepath.Join(s.dir, name) }

// release creates the file go.
func (s *shop) release() {
	s.t.Helper()
	err := os.WriteFile(s.path("go"), nil, 0o600)
	require.NoError(s.t, err)
}

// Pids returns the process ids in a file, in order.
func (s *shop) Pids(name string) (pids []int) {
	data, err := os.ReadFile(s.path(name))
	require.False(s.t, err != nil && !errors.Is(err, os.ErrNotExist))
	for _, word := range strings.Fields(string(data)) {
		var pid int
		_, err := fmt.Sscan(word, &pid)
		require.NoError(s.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}
