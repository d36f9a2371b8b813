package node

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/internal/cert"
)

// dial opens a connection and sends the beginning of a request.
func dial(t *testing.T, s *server, beginning string) *testConn {
	t.Helper()
	c := connect(t, s)
	_, err := io.WriteString(c, beginning)
	require.NoError(t, err)
	return c
}

func requireClosed(t *testing.T, c *testConn, why string) {
	t.Helper()
	_, err := c.answers.ReadByte()
	require.Error(t, err, why)
}

// At the limit a connection whose request has not arrived completely is closed for a new one, the oldest first, whether
// headers or the body are missing. A connection with a complete request is not.
func TestSlowConnectionsAreClosedForNewOnes(t *testing.T) {
	entered := make(chan struct{}, 8)
	s := serveConnections(t, 4, nil, nil)
	api := httpapi.New(httpapitest.New(t).Config())
	s.setAPI(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		api.ServeHTTP(w, r)
	}))
	ask := func(s *testConn) int {
		_, err := fmt.Fprint(s, "GET /v1/flights HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(s.answers, nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		<-entered
		return resp.StatusCode
	}
	const post = "POST /v1/flights:open HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	open := func(nonce string) string {
		body := `{"action":"charge","id":"1","nonce":"` + nonce + `0123456789","wait_ms":5000}`
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", post, len(body), body)
	}
	holder := dial(t, s, open("first"))
	<-entered
	resp, err := http.ReadResponse(holder.answers, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, holder.Close())

	waits := dial(t, s, open("other")) // a complete request, which waits for the first caller
	<-entered
	inBody := dial(t, s, post+"Content-Length: 100\r\n\r\n{")
	<-entered
	inChunk := dial(t, s, post+"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
	<-entered
	inHeader := dial(t, s, post)
	for i, oldest := range []*testConn{inBody, inChunk, inHeader} {
		next := connect(t, s)
		require.Equal(t, http.StatusOK, ask(next))
		requireClosed(t, oldest, fmt.Sprint(i))
	}
	resp, err = http.ReadResponse(waits.answers, nil)
	require.NoError(t, err, "its connection was closed")
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
}

// A TLS handshake that stalls does not keep its connection, either.
func TestStalledHandshakesAreClosedForNewOnes(t *testing.T) {
	a := newAuthority(t)
	a.write(1)
	certs, err := cert.Serve(a.files(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s := serveConnections(t, 2, certs, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var stalled []*testConn
	for range 5 {
		stalled = append(stalled, dial(t, s, "\x16\x03\x01"))
	}
	resp, err := a.client().Get(s.url() + "/")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	for _, c := range stalled[:4] {
		requireClosed(t, c, "one of two places is for the last one")
	}
}

// A connection may wait for its caller for the time of grace, also at the limit.
func TestYoungConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newConnections(fromEverywhere{conns: make(chan net.Conn, 4)}, 1, nil)
		start := time.Now()
		for range 3 {
			theirs, ours := net.Pipe()
			defer theirs.Close()
			cs.Listener.(fromEverywhere).conns <- ours
			_, err := cs.Accept()
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, time.Since(start), 2*evictionGrace)
		require.Less(t, time.Since(start), 3*evictionGrace)
	})
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.from }

// fromEverywhere is a listener whose connections come from the given addresses.
type fromEverywhere struct {
	net.Listener
	conns chan net.Conn
}

func (e fromEverywhere) Accept() (net.Conn, error) {
	if c, open := <-e.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (e fromEverywhere) Close() error { close(e.conns); return nil }

// A remote address has at most a quarter of the connections, an IPv6 network as well; loopback addresses have all. At
// its share an address loses its own connections first, and if all have complete requests, the new one is closed.
func TestOneRemoteAddressHasAShare(t *testing.T) {
	cs := newConnections(fromEverywhere{conns: make(chan net.Conn, 64)}, 16, nil)
	cs.grace = 0
	accept := func(ip string) (*connection, net.Conn) {
		t.Helper()
		theirs, ours := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		cs.Listener.(fromEverywhere).conns <- addressed{ours, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
		c, err := cs.Accept()
		require.NoError(t, err)
		return c.(*connection), theirs
	}
	isOpen := func(c *connection) bool { _, open := cs.open[c]; return open }
	for range 6 {
		accept("127.0.0.1")
	}
	require.Len(t, cs.open, 6, "loopback has no share of its own")
	var one []*connection
	for range 4 {
		c, _ := accept("192.0.2.1")
		one = append(one, c)
	}
	one[0].onReceived()
	fifth, _ := accept("192.0.2.1")
	require.True(t, isOpen(one[0]), "it has a complete request")
	require.False(t, isOpen(one[1]), "it has waited the longest")
	require.Len(t, cs.open, 10)
	for _, c := range []*connection{one[2], one[3], fifth} {
		c.onReceived()
	}
	theirs, ours := net.Pipe()
	cs.Listener.(fromEverywhere).conns <- addressed{ours, one[0].RemoteAddr()}
	other, _ := accept("192.0.2.2") // the same call rejects the connection before
	_, err := bufio.NewReader(theirs).ReadByte()
	require.ErrorIs(t, err, io.EOF, "all of the address's share is busy")
	require.True(t, isOpen(other))
	first, _ := accept("2001:db8::1")
	for _, ip := range []string{"2001:db8::2", "2001:db8::3:4", "2001:db8::5", "2001:db8::6"} {
		require.True(t, isOpen(first))
		accept(ip)
	}
	require.False(t, isOpen(first), "a /64 is one caller")
	require.Len(t, cs.open, 15)
	require.NoError(t, other.Close())
	require.False(t, isOpen(other))
	require.Len(t, cs.perRemote, 3)
}

// A connection waits for its caller while a write blocks, and not afterwards: a stream without news is never closed for
// another connection.
func TestConnectionWaitsWhileAWriteBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newConnections(fromEverywhere{conns: make(chan net.Conn, 1)}, 1, nil)
		theirs, ours := net.Pipe()
		cs.Listener.(fromEverywhere).conns <- ours
		accepted, err := cs.Accept()
		require.NoError(t, err)
		c := accepted.(*connection)
		evict := func() bool {
			time.Sleep(2 * evictionGrace)
			cs.mu.Lock()
			defer cs.mu.Unlock()
			return cs.evict(func(*connection) bool { return true })
		}
		c.onReceived()
		written := make(chan error, 1)
		write := func() {
			_, err := io.WriteString(c, "news")
			written <- err
		}
		go write()
		_, err = io.ReadFull(theirs, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, <-written)
		require.False(t, evict(), "nothing is being written")
		go write()
		require.True(t, evict(), "the write blocks")
		require.ErrorIs(t, <-written, io.ErrClosedPipe)
	})
}

// An answer must be read within answerTime from its first byte. The wait before it does not count.
func TestAnswerHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fromEverywhere{conns: make(chan net.Conn, 1)}
		cs := newConnections(l, 4, nil)
		took := make(chan time.Duration, 1)
		server := httpapi.Server("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(50 * time.Second) // a long poll
			start := time.Now()
			if _, err := w.Write(make([]byte, 1<<20)); err == nil {
				t.Error("nobody has read the answer")
			}
			took <- time.Since(start)
		}))
		cs.watch(server)
		theirs, ours := net.Pipe()
		l.conns <- ours
		served := make(chan error, 1)
		go func() { served <- server.Serve(cs) }()
		_, err := io.WriteString(theirs, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		require.Equal(t, answerTime, <-took)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}
