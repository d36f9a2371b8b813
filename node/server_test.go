package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/cert"
)

// testConn keeps one connection open.
type testConn struct {
	net.Conn
	answers *bufio.Reader
}

func connect(t *testing.T, f *server) *testConn {
	t.Helper()
	c, err := net.Dial("tcp", f.connections.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return &testConn{c, bufio.NewReader(c)}
}

func (c *testConn) ask(path string) error {
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	return err
}

func (c *testConn) readResponse(t *testing.T) {
	t.Helper()
	resp, err := http.ReadResponse(c.answers, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// smallTestServer is a server with at most three connections.
type smallTestServer struct {
	*server
	asked, answer chan struct{} // a request for /wait is sent to asked, and answered after a receive from answer
	idle          chan struct{} // has a value after a connection has become idle
}

func smallServer(t *testing.T) smallTestServer {
	t.Helper()
	s := smallTestServer{asked: make(chan struct{}), answer: make(chan struct{}), idle: make(chan struct{}, 100)}
	s.server = newTestServer(t, 3, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			s.asked <- struct{}{}
			<-s.answer
		}
	}))
	onStateChange := s.http.ConnState
	s.http.ConnState = func(c net.Conn, state http.ConnState) {
		onStateChange(c, state)
		if state == http.StateIdle {
			s.idle <- struct{}{}
		}
	}
	serveForTest(t, s.server)
	t.Cleanup(func() { close(s.answer) })
	return s
}

// serveConnections starts a server with at most limit connections.
func serveConnections(t *testing.T, limit int, certs *cert.Served, h http.Handler) *server {
	t.Helper()
	s := newTestServer(t, limit, certs, h)
	serveForTest(t, s)
	return s
}

func newTestServer(t *testing.T, limit int, certs *cert.Served, h http.Handler) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := newServer(l, limit, certs, slog.New(slog.DiscardHandler))
	s.connections.grace = time.Millisecond
	s.setAPI(h)
	return s
}

func serveForTest(t *testing.T, s *server) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
}

// At the limit the connection that has been idle the longest is closed for a new one; a busy one is not.
func TestIdleConnectionsAreClosedForNewOnes(t *testing.T) {
	f := smallServer(t)
	busy, first, second := connect(t, f.server), connect(t, f.server), connect(t, f.server)
	require.NoError(t, busy.ask("/wait"))
	<-f.asked
	for _, s := range []*testConn{second, first, second, first} {
		require.NoError(t, s.ask("/"))
		s.readResponse(t)
		<-f.idle
	}
	third := connect(t, f.server)
	require.NoError(t, third.ask("/"))
	third.readResponse(t)
	_, err := second.answers.ReadByte()
	require.Error(t, err, "it has been idle the longest")
	require.NoError(t, first.ask("/"))
	first.readResponse(t)
	f.answer <- struct{}{}
	busy.readResponse(t)
}

// If all connections are busy, a new one waits for the first response.
func TestNewConnectionWaitsForFreeSlot(t *testing.T) {
	f := smallServer(t)
	for range 3 {
		require.NoError(t, connect(t, f.server).ask("/wait"))
		<-f.asked
	}
	s := connect(t, f.server)
	require.NoError(t, s.ask("/"))
	f.answer <- struct{}{}
	s.readResponse(t)
}

// A stop does not wait for a free connection: the cleanup stops this server before its requests are answered.
func TestAFullServerStops(t *testing.T) {
	f := smallServer(t)
	for range 3 {
		require.NoError(t, connect(t, f.server).ask("/wait"))
		<-f.asked
	}
	connect(t, f.server)
}

func TestMaxConnections(t *testing.T) {
	for limit, want := range map[uint64]int{0: 8, 20: 8, 64: 16, 128: 64, 1024: 512, 16_384: 8192, 20_000: 8192, 1 << 63: 8192} {
		require.Equal(t, want, maxConnections(limit), "%d", limit)
	}
}

// A node with more idle connections than file descriptors still serves the next caller and records its flight. The
// limit is per process, so the node runs in another process.
func TestIdleConnectionsDoNotBlockCallers(t *testing.T) {
	t.Parallel()
	const alone = "FLIGHTD_TEST_FEW_FILES"
	if data := os.Getenv(alone); data != "" {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}))
		fmt.Println(startNode(t, data).url)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), alone+"="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := bufio.NewReader(stdout)
	url, err := said.ReadString('\n')
	require.NoError(t, err)
	url = strings.TrimSpace(url)
	for i := range 100 {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		if i%2 == 0 { // the others send nothing
			_, err = fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
			require.NoError(t, err)
		}
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(url+"/v1/flights:open", "application/json", strings.NewReader(`{"action":"charge","id":"1"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.NoError(t, stdin.Close())
	_, _ = io.Copy(io.Discard, said)
	require.NoError(t, cmd.Wait())
}

// Callers that do not read their answers do not keep their connections at the limit.
func TestUnreadAnswersAreClosedForNewOnes(t *testing.T) {
	large := make([]byte, 16<<20) // more than the kernel buffers
	f := serveConnections(t, 3, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(large)
		}
	}))
	for range 6 {
		require.NoError(t, connect(t, f).ask("/large"))
	}
	start := time.Now()
	s := connect(t, f)
	require.NoError(t, s.ask("/"))
	s.readResponse(t)
	require.Less(t, time.Since(start), answerTime/2)
}
