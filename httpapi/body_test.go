package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// pipeListener accepts in-memory connections, whose deadlines follow the virtual time of a test.
type pipeListener struct {
	conns chan net.Conn
	stop  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.stop:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.stop); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// pipeServer is the server of Server over in-memory connections. It must be started in a bubble.
type pipeServer struct {
	t        *testing.T
	listener *pipeListener
	received atomic.Int64            // requests that have arrived completely
	cancel   context.CancelCauseFunc // cancels all requests
	fake     *httpapitest.Fake
}

func newPipeServer(t *testing.T, change ...func(*httpapi.Config)) *pipeServer {
	fake := httpapitest.New(t)
	cfg := fake.Config()
	for _, c := range change {
		c(&cfg)
	}
	s := &pipeServer{t: t, fake: fake, listener: &pipeListener{conns: make(chan net.Conn), stop: make(chan struct{})}}
	server := httpapi.Server("", httpapi.New(cfg))
	base, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	server.BaseContext = func(net.Listener) context.Context { return base }
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return httpapi.WithReceived(ctx, func() { s.received.Add(1) })
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		synctest.Wait()
	})
	return s
}

func (s *pipeServer) dial() net.Conn {
	clientEnd, serverEnd := net.Pipe()
	s.listener.conns <- serverEnd
	s.t.Cleanup(func() { _ = clientEnd.Close() })
	return clientEnd
}

// exchange sends a request, chunk bytes of its body each second. It returns the answer and when it came.
func (s *pipeServer) exchange(path, contentType, body string, chunk int) (answer reply, took time.Duration) {
	s.t.Helper()
	c := s.dial()
	start := time.Now()
	sent := make(chan struct{})
	defer func() { <-sent }()
	defer c.Close()
	go func() {
		defer close(sent)
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", path, contentType, len(body))
		for err == nil && body != "" {
			n := min(chunk, len(body))
			_, err = io.WriteString(c, body[:n])
			body = body[n:]
			time.Sleep(time.Second)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(s.t, err)
	took = time.Since(start)
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	if resp.Close {
		resp.Header.Set("Connection", "close") // as it was on the wire
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: data}, took
}

// TestBody_SlowCallersAreAnswered: a body has a deadline, also where no handler reads it, and where it is rejected.
func TestBody_SlowCallersAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		for path, want := range map[string]int{
			"/v1/flights:open": http.StatusRequestTimeout, "/v1/sessions": http.StatusRequestTimeout,
			"/nowhere": http.StatusNotFound, "/livez": http.StatusMethodNotAllowed, "/v1/flights": http.StatusMethodNotAllowed,
		} {
			answer, took := s.exchange(path, "application/json", strings.Repeat(" ", 100), 1)
			require.Equal(t, want, answer.status, path)
			require.InDelta(t, 10, took.Seconds(), 1, path)
			require.Contains(t, answer.header.Get("Connection"), "close", path)
		}
		require.Zero(t, s.received.Load(), "none of them has arrived completely")
	})
}

// TestBody_LargeBodyHasTimeByItsBytes: a large body may take longer, as long as it arrives at a minimum rate. The
// announced length gives it no time.
func TestBody_LargeBodyHasTimeByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		var lines strings.Builder
		for n := 0; lines.Len() < 2<<20; n++ {
			fmt.Fprintf(&lines, `{"key":"default/charge/%d","outcome":"succeeded","body":{"x":"%s"}}`+"\n", n, strings.Repeat("x", 1<<11))
		}
		body := lines.String()
		answer, took := s.exchange("/v1/flights:import", "application/x-ndjson", body, 64<<10)
		require.Equal(t, http.StatusOK, answer.status, "%.300s", answer.body)
		require.InDelta(t, float64(len(body)>>16), took.Seconds(), 2)
		require.EqualValues(t, 1, s.received.Load())

		answer, took = s.exchange("/v1/flights:import", "application/x-ndjson", body, 16<<10)
		require.Equal(t, http.StatusRequestTimeout, answer.status, "%.300s", answer.body)
		require.InDelta(t, 13, took.Seconds(), 2, "16 KiB a second: 208 KiB have arrived after 13 s")
		require.EqualValues(t, 1, s.received.Load())
	})
}

// TestBody_DeadlineEndsWithTheBody: a caller waits for another one's flight for longer than its body may take.
func TestBody_DeadlineEndsWithTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		open := func(nonce string) string {
			return `{"action":"charge","id":"1","nonce":"` + nonce + `0123456789","ttl_ms":600000,"wait_ms":50000}`
		}
		answer, _ := s.exchange("/v1/flights:open", "application/json", open("first"), 1<<10)
		require.Equal(t, http.StatusCreated, answer.status, "%s", answer.body)
		answer, took := s.exchange("/v1/flights:open", "application/json", open("other"), 1<<10)
		require.Equal(t, http.StatusConflict, answer.status, "%s", answer.body)
		require.InDelta(t, 50, took.Seconds(), 3)
		require.EqualValues(t, 2, s.received.Load())
	})
}

// TestBody_StopIsNotExtended: a stop that has ended all reads does not wait for a body whose deadline is set later.
func TestBody_StopIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t)
		s.cancel(&effect.Unavailable{Code: "draining", Cause: effect.ErrClosed})
		for path, contentType := range map[string]string{"/v1/flights:open": "application/json", "/v1/flights:import": "application/x-ndjson"} {
			answer, took := s.exchange(path, contentType, strings.Repeat(" ", 100<<10), 1<<10)
			require.Equal(t, http.StatusServiceUnavailable, answer.status, "%s", answer.body)
			require.Less(t, took, 2*time.Second)
		}
	})
}

// TestStream_UnreadOneEnds: a stream that nobody reads does not block the ledger, ends in bounded time, and then no longer counts.
func TestStream_UnreadOneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPipeServer(t, func(c *httpapi.Config) { c.Events.MaxStreams = 1 })
		follow := func() net.Conn {
			c := s.dial()
			_, err := io.WriteString(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
			require.NoError(t, err)
			return c
		}
		status := func(c net.Conn) int {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			return resp.StatusCode
		}
		unread := follow()
		synctest.Wait()
		for n := range 1000 {
			require.True(t, s.fake.Apply(t, &flight.Submit{Key: flight.MustKey(fmt.Sprintf("default/b/%d", n))}).Changed, "the ledger is not blocked")
		}
		other := follow()
		require.Equal(t, http.StatusTooManyRequests, status(other))
		time.Sleep(21 * time.Second)
		synctest.Wait()
		require.Equal(t, http.StatusOK, status(follow()), "the first one has ended")
		_, err := io.Copy(io.Discard, unread)
		require.NoError(t, err, "its connection is closed")
	})
}
