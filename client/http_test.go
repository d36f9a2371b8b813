package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// newScriptedClient is a client of a server that answers each request with the next of the raw answers. It closes the connection
// after an answer that says so or is not HTTP/1.1, and so after an empty one.
func newScriptedClient(t *testing.T, answers ...string) *Client {
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
				req, err := http.ReadRequest(r)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, req.Body)
				answer := answers[0]
				answers = answers[1:]
				_, _ = conn.Write([]byte(strings.Replace(answer, "ECHO", req.Header.Get(wire.HeaderEcho), 1)))
				if !strings.HasPrefix(answer, "HTTP/1.1") || strings.Contains(answer, "close\r\n") {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	c := newUnconnectedClient(t, listener)
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		require.NoError(t, listener.Close())
		<-done
	})
	return c
}

// newUnconnectedClient is a client of the server that listens there. It is not connected: it has sent nothing.
func newUnconnectedClient(t *testing.T, listener net.Listener, opts ...Option) *Client {
	t.Helper()
	o, err := newOptions(append([]Option{WithoutSpool(), WithRetryTimeout(time.Millisecond), WithNamespace("ns")}, opts...))
	require.NoError(t, err)
	return &Client{requester: requester{opts: o, servers: []string{"http://" + listener.Addr().String()}, http: newTransport(&o, nil)}}
}

// An answer that is cut off, too long or not flightd's is none. The rest of HTTP/1.1 is the standard library's.
func TestBadAnswers(t *testing.T) {
	const body = `{"version":"x"}`
	for name, answer := range map[string]string{
		"cut off":        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n" + body,
		"too long":       fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", maxAnswer+1, body),
		"something else": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
	} {
		_, err := newScriptedClient(t, answer).Version(t.Context())
		require.Error(t, err, name)
	}
}

// A connection that the server closes while it is idle is no failure: the request is repeated over another one.
func TestServerClosesAnIdleConnection(t *testing.T) {
	post := request{method: http.MethodPost, path: "/v1/sessions", body: []byte("{}")}
	c := newScriptedClient(t, rawAnswer(200, "{}"), "", rawAnswer(200, "{}"))
	for _, unsure := range []bool{false, true} {
		resp, err := c.ask(t.Context(), post)
		require.NoError(t, err)
		require.Equal(t, unsure, resp.mayHaveArrived, "the server may have read the first request")
	}
	post.noStaleRetry = true
	c = newScriptedClient(t, rawAnswer(200, "{}"), "", rawAnswer(200, "{}"))
	_, err := c.ask(t.Context(), post)
	require.NoError(t, err)
	_, err = c.ask(t.Context(), post)
	var unavailable *effect.Unavailable
	require.ErrorAs(t, err, &unavailable, "it is asked for once")
}

// The transport repeats no request with a body, and follows no redirect.
func TestRequestIsSentOnce(t *testing.T) {
	post := request{method: http.MethodPost, path: "/v1/sessions", body: []byte("{}"), maxTries: 1}
	for name, answer := range map[string]string{
		"no answer": "",
		"redirect":  "HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newScriptedClient(t, answer, rawAnswer(200, "{}"), "")
			_, err := c.ask(t.Context(), post)
			require.Error(t, err)
			_, err = c.ask(t.Context(), post)
			require.NoError(t, err, "the second answer was not used up")
		})
	}
}

// Only a request that had no connection has surely not arrived.
func TestMayHaveArrived(t *testing.T) {
	get := request{method: http.MethodGet, path: "/version"}
	resp, err := newScriptedClient(t, "").ask(t.Context(), get)
	require.Error(t, err)
	require.True(t, resp.mayHaveArrived)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	resp, err = newUnconnectedClient(t, listener).ask(t.Context(), get)
	require.ErrorContains(t, err, "dial")
	require.False(t, resp.mayHaveArrived)

	synctest.Test(t, func(t *testing.T) {
		network := NewPipeNet() // no server accepts
		c := newUnconnectedClient(t, network, WithPipeNet(network))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := c.ask(ctx, get)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, resp.mayHaveArrived)
		require.NoError(t, network.Close())
	})
}

// A server that begins its answer and never ends it does not hold a request for longer than a try may take. That is not
// the end of the caller's context.
func TestAnswerThatNeverEnds(t *testing.T) {
	for name, begun := range map[string]string{"nothing": "", "in the head": "HTTP/1.1 200 OK\r\n", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := NewPipeNet()
				c := newUnconnectedClient(t, network, WithPipeNet(network))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					conn, err := network.Accept()
					if err != nil {
						return
					}
					r := bufio.NewReader(conn)
					_, _ = http.ReadRequest(r)
					_, _ = conn.Write([]byte(begun))
					_, _ = r.ReadByte() // until the client closes it
					_ = conn.Close()
				}()
				began := time.Now()
				resp, err := c.ask(t.Context(), request{method: http.MethodGet, path: "/version", timeout: time.Minute, maxTries: 1})
				require.ErrorIs(t, err, errTryTimeout)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, resp.mayHaveArrived)
				require.Equal(t, time.Minute, time.Since(began))
				<-gone
			})
		})
	}
}

// echoLine is replaced by the request's own value of the header.
const echoLine = wire.HeaderEcho + ": ECHO\r\n"

// rawAnswer is an answer as flightd writes it.
func rawAnswer(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d x\r\n%sContent-Length: %d\r\n\r\n%s", status, echoLine, len(body), body)
}

// An answer without the value of the request's own Flightd-Echo is that to another request, mixed up by a proxy, or of other software. Nothing
// is concluded from it, and the request may have been carried out.
func TestAnswerToAnotherRequest(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	flightBody := `{"id":"` + key.FlightID().String() + `","state":"succeeded"}`
	proceed := `{"decision":"proceed","flight_id":"` + key.FlightID().String() + `","fencing_token":"t","session":"ses_1","trust_ms":9000}`
	busy := `{"code":"idempotency_in_flight","retryable":true,"flight_id":"` + key.FlightID().String() + `"}`
	ended := `{"code":"lease_lost","retryable":false,"session":"ses_1"}`
	for _, ask := range []struct {
		name   string
		status int
		body   string
		send   func(*Client) error
	}{
		{"open", 201, proceed, func(c *Client) error { _, err := c.Open(t.Context(), key, OpenRequest{}); return err }},
		{"open, busy", 409, busy, func(c *Client) error { _, err := c.Open(t.Context(), key, OpenRequest{}); return err }},
		{"verification", 201, proceed, func(c *Client) error { _, err := c.Verify(t.Context(), key, VerificationRequest{}); return err }},
		{"report", 200, flightBody, func(c *Client) error { _, err := c.Report(t.Context(), key, ReportRequest{}); return err }},
		{"abandon", 200, "{}", func(c *Client) error { return c.Abandon(t.Context(), key, AbandonRequest{}) }},
		{"session", 201, `{"session":"ses_1","trust_ms":9000}`, func(c *Client) error { _, err := c.NewSession(t.Context(), 0, ""); return err }},
		{"renewal", 410, ended, func(c *Client) error { _, err := c.Renew(t.Context(), "ses_1", RenewRequest{}); return err }},
		{"flight", 200, flightBody, func(c *Client) error { _, err := c.Flight(t.Context(), key.FlightID()); return err }},
		{"backup", 200, "tar", func(c *Client) error { return c.Backup(t.Context(), io.Discard) }},
	} {
		own := rawAnswer(ask.status, ask.body)
		for name, answer := range map[string]string{"no echo": strings.Replace(own, echoLine, "", 1), "another's": strings.Replace(own, "ECHO", "another", 1)} {
			err := ask.send(newScriptedClient(t, answer))
			var unavailable *effect.Unavailable
			require.ErrorAs(t, err, &unavailable, "%s, %s", ask.name, name)
			require.Nil(t, problemOf(err))
			require.True(t, mayHaveArrived(err))
		}
		err := ask.send(newScriptedClient(t, own))
		require.Equal(t, ask.status >= 400, problemOf(err) != nil, "%s: %v", ask.name, err)
	}
	a, err := newScriptedClient(t, rawAnswer(201, `{"decision":"pro`)).Open(t.Context(), key, OpenRequest{})
	require.Error(t, err)
	require.True(t, a.mayHaveArrived, "an answer that cannot be read: the open is to be given back")
}

// When other software answers with 404, the next server is asked at once.
func TestOtherSoftwareAnswers_NextServerIsAsked(t *testing.T) {
	const page = "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\nX: close\r\n\r\n<html>"
	stranger, flightd := newScriptedClient(t, page, page), newScriptedClient(t, rawAnswer(200, `{"version":"x"}`))
	c := newScriptedClient(t)
	c.servers = []string{stranger.servers[0], flightd.servers[0]}
	v, err := c.Version(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x", v.Version)

	c = newScriptedClient(t, page, page, page)
	c.servers = append(c.servers, c.servers[0])
	_, err = c.Version(t.Context())
	require.Equal(t, Code("internal"), CodeOf(err), "without another server, that is the error, at once")
	require.ErrorContains(t, err, "not flightd")
}

// A value that a caller puts into a header cannot become another header.
func TestNoHeaderInjection(t *testing.T) {
	_, err := newScriptedClient(t).ask(t.Context(), request{method: http.MethodGet, path: "/version", ifMatch: "1\r\nX: y"})
	var rejected *Error
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, Code("input_invalid"), CodeOf(err))
}

// The end of the context ends a request without an answer, and its cause is returned.
func TestContextEndsARequest(t *testing.T) {
	hung, asked := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-hung }))
	defer server.Close()
	defer close(hung)
	c := newUnconnectedClient(t, server.Listener)
	why := errors.New("on purpose")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asked; cancel(why) }()
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: "/version"})
	require.ErrorIs(t, err, why)
	require.True(t, resp.mayHaveArrived)
}

// When the context ends during a later try, the error still says why the earlier one failed.
func TestContextEndsALaterTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		defer close(hung)
		dials := 0
		c := newUnconnectedClient(t, NewPipeNet(), WithRetryTimeout(time.Minute), func(o *options) {
			o.dial = func(context.Context, string, string) (net.Conn, error) {
				if dials++; dials > 1 {
					<-hung
				}
				return nil, errors.New("connection refused")
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.ask(ctx, request{method: http.MethodGet, path: "/version"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "connection refused")
	})
}

// Opens that wait at the server leave connections for reports and renewals.
func TestWaitingOpensLeaveConnections(t *testing.T) {
	const opens = 600 // more than idle connections are kept
	release := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(opens)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			waiting.Done()
			<-release
		}
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		_, _ = w.Write([]byte(`{"version":"x"}`))
	}))
	defer server.Close()
	c := newUnconnectedClient(t, server.Listener)
	defer c.http.CloseIdleConnections()
	var ended sync.WaitGroup
	for range opens {
		ended.Go(func() {
			_, err := c.ask(t.Context(), request{method: http.MethodPost, path: "/v1/flights:open", body: []byte("{}")})
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	_, err := c.Version(t.Context())
	require.NoError(t, err)
	close(release)
	ended.Wait()
}

// An address may have a path, and credentials for a proxy in front of the server.
func TestAddressWithPathAndCredentials(t *testing.T) {
	api := http.StripPrefix("/base", httpapi.New(httpapitest.New(t).Config()))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "user" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	c, err := Connect(t.Context(), "http://user:secret@"+server.Listener.Addr().String()+"/base", WithoutSpool())
	require.NoError(t, err)
	call := effect.Call{Key: flight.MustKey("ns/charge/1")}
	for range 2 {
		result, err := c.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{Body: []byte("x")}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "x", string(result.Answer.Body))
	}
	require.NoError(t, c.Close(t.Context()))
}
