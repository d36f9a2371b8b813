package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// scripted is a server that answers each request with the next of the raw answers, and hangs up after the last one.
func scripted(t *testing.T, answers ...string) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			for len(answers) > 0 {
				if _, err := http.ReadRequest(r); err != nil {
					break
				}
				answer := answers[0]
				answers = answers[1:]
				_, _ = conn.Write([]byte(answer))
				if !strings.HasPrefix(answer, "HTTP/1.1") || strings.Contains(answer, "close\r\n") {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	o, err := newOptions([]Option{WithoutSpool(), WithPatience(time.Millisecond), WithNamespace("ns")})
	require.NoError(t, err)
	server := "http://" + listener.Addr().String()
	c := &Client{opts: o, servers: []string{server}, links: []*link{newLink(server)}, http: &http.Client{}}
	t.Cleanup(func() {
		c.hangUp()
		require.NoError(t, listener.Close())
		<-done
	})
	return c
}

// Answers as flightd writes them, and as whatever stands between may rewrite them.
func TestAnyAnswerOfHTTP11(t *testing.T) {
	const body = `{"version":"x"}`
	good := map[string]string{
		"plain":         "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nDate: x\r\n\r\n" + body,
		"other case":    "HTTP/1.1 200 OK\r\ncontent-length:15\r\n\r\n" + body,
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"ver\r\na\r\nsion\":\"x\"}\r\n0\r\n\r\n",
		"closing":       "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n" + body,
		"until the end": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body,
		"with a hint":   "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + body,
		"HTTP/1.0":      "HTTP/1.0 200 OK\r\nContent-Length: 15\r\n\r\n" + body,
		"large head":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 2*readBuffer) + "\r\nContent-Length: 15\r\n\r\n" + body,
	}
	for name, answer := range good {
		t.Run(name, func(t *testing.T) {
			c := scripted(t, answer, answer)
			for range 2 {
				v, err := c.Version(t.Context())
				require.NoError(t, err)
				require.Equal(t, "x", v.Version)
			}
		})
	}
	bad := map[string]string{
		"cut off":        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n" + body,
		"nothing":        "",
		"not HTTP":       "SSH-2.0-x\r\n\r\n",
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nContent-Length: 16\r\nConnection: close\r\n\r\n" + body,
		"bad length":     "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nConnection: close\r\n\r\n" + body,
		"something else": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
	}
	for name, answer := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := scripted(t, answer).Version(t.Context())
			require.Error(t, err)
		})
	}
}

// A connection that the server closed while it was idle is no failure.
func TestStaleConnection(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"version\":\"x\"}"
	c := scripted(t, "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nX: close\r\n\r\n{\"version\":\"x\"}", answer)
	for range 2 {
		_, err := c.Version(t.Context())
		require.NoError(t, err)
	}
}

// What a caller puts into a header cannot become another header.
func TestNoHeaderInjection(t *testing.T) {
	c := scripted(t)
	for _, links := range [][]*link{c.links, {nil}} {
		c.links = links
		_, err := c.ask(t.Context(), request{method: http.MethodGet, path: "/version", ifMatch: "1\r\nX: y"})
		var refused *Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, Code("input_invalid"), CodeOf(err))
	}
}

// The end of the context ends a request that nobody answers, and says why.
func TestContextEndsARequest(t *testing.T) {
	hung := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer server.Close()
	defer close(hung)
	c := scripted(t)
	for _, links := range [][]*link{{newLink(server.URL)}, {nil}} {
		c.links, c.servers = links, []string{server.URL}
		why := errors.New("on purpose")
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		_, err := c.ask(ctx, request{method: http.MethodGet, path: "/version"})
		require.ErrorIs(t, err, why)
		timer.Stop()
	}
}

// Servers behind TLS or a proxy are spoken to through net/http, with the same result.
func TestThroughNetHTTP(t *testing.T) {
	require.Nil(t, newLink("https://127.0.0.1:1"))
	require.Nil(t, newLink("http://user:secret@127.0.0.1:1"))
	require.Equal(t, "example.org:80", newLink("http://example.org/base").addr)
	server := httptest.NewServer(http.StripPrefix("/base", httpapi.New(httpapitest.NewWorld().Config())))
	defer server.Close()
	c, err := Connect(t.Context(), server.URL+"/base", WithoutSpool())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(t.Context())) }()
	for _, l := range []*link{c.links[0], nil} {
		c.links[0] = l
		call := effect.Call{Key: flight.MustKey("ns/charge/" + map[bool]string{true: "1", false: "2"}[l == nil])}
		for range 2 {
			result, err := c.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{Body: []byte("x")}, nil
			})
			require.NoError(t, err)
			require.Equal(t, "x", string(result.Answer.Body))
		}
	}
}
