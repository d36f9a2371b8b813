package client

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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
	"github.com/flightd/flightd/internal/wire"
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
	c := clientOf(t, listener)
	t.Cleanup(func() {
		c.hangUp()
		require.NoError(t, listener.Close())
		<-done
	})
	return c
}

// clientOf is a client of whatever listens there.
func clientOf(t *testing.T, listener net.Listener) *Client {
	t.Helper()
	o, err := newOptions([]Option{WithoutSpool(), WithPatience(time.Millisecond), WithNamespace("ns")})
	require.NoError(t, err)
	server := "http://" + listener.Addr().String()
	return &Client{opts: o, servers: []string{server}, links: []*link{newLink(server)}, http: &http.Client{}}
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

// plainly is an answer as flightd writes it.
func plainly(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// An answer that comes twice is none to the request after it.
func TestAnswerThatComesTwice(t *testing.T) {
	first, second := plainly(200, `{"version":"1"}`), plainly(200, `{"version":"2"}`)
	c := scripted(t, first+first, second)
	for _, want := range []string{"1", "2"} {
		v, err := c.Version(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, v.Version)
	}
}

// Nor is it where it comes when the connection is idle already.
func TestAnswerThatComesTwiceAndLate(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	again, done := make(chan struct{}), make(chan struct{})
	sent := make(chan struct{}, 2)
	go func() {
		defer close(done)
		for _, version := range []string{"1", "2"} {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			answer := []byte(plainly(200, `{"version":"`+version+`"}`))
			_, _ = conn.Write(answer)
			<-again
			_, _ = conn.Write(answer)
			sent <- struct{}{}
		}
	}()
	c := clientOf(t, listener)
	defer func() {
		c.hangUp()
		require.NoError(t, listener.Close())
		<-done
	}()
	for _, want := range []string{"1", "2"} {
		v, err := c.Version(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, v.Version)
		if want == "1" {
			close(again)
			<-sent
		}
	}
}

// An answer to an open names the flight and the session, too. It is none to a report or a renewal: whoever believed it would
// take a report for kept that nobody has, or believe in a session that nobody has renewed.
func TestAnswerToSomethingElse(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	open := plainly(200, `{"decision":"proceed","flight_id":"`+key.FlightID().String()+`","fencing_token":"t","session":"ses_1","trust_ms":9000}`)
	_, err := scripted(t, open).Report(t.Context(), key, ReportRequest{FencingToken: "t", Outcome: "succeeded"})
	require.Equal(t, later, verdictOn(err))
	_, err = scripted(t, open).Flight(t.Context(), key.FlightID())
	require.Error(t, err)
	a, err := scripted(t, open).Renew(t.Context(), "ses_1", RenewRequest{})
	require.Error(t, err)
	require.Zero(t, a.TrustMS)
}

// An answer that another caller of the same flight was given lets nobody act: the attempt is that one's. Nor does one that does
// not say whose it is.
func TestAnswerToAnotherOpen(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	for given, good := range map[string]bool{`"nonce":"mine",`: true, `"nonce":"another",`: false, "": false, `"nonce": "mine",`: true} {
		answer := plainly(201, `{"decision":"proceed",`+given+`"flight_id":"`+key.FlightID().String()+`","fencing_token":"t","session":"s","trust_ms":9000}`)
		for ask, with := range map[string]func(*Client) (OpenAnswer, error){
			"open":    func(c *Client) (OpenAnswer, error) { return c.Open(t.Context(), key, OpenRequest{Nonce: "mine"}) },
			"verdict": func(c *Client) (OpenAnswer, error) { return c.Verdict(t.Context(), key, VerdictRequest{Nonce: "mine"}) },
		} {
			a, err := with(scripted(t, answer))
			require.Equal(t, good, err == nil, "%s, %s", ask, given)
			require.Equal(t, good, a.Decision != "")
			require.Equal(t, !good, a.unsure, "the open may be carried out: it is to be given back")
		}
	}
}

// A refusal that names another flight is none: something between has mixed it up. A report that it would be taken for is kept
// nowhere, and an open may be carried out.
func TestRefusalOfAnother(t *testing.T) {
	key, other := flight.MustKey("default/charge/1"), flight.MustKey("default/charge/2").FlightID().String()
	for name, body := range map[string]string{
		"fenced":   `{"code":"fenced","retryable":false,"flight_id":"` + other + `"}`,
		"in doubt": `{"code":"in_doubt","retryable":false,"flight_id":"` + other + `"}`,
		"failed":   `{"code":"flight_failed","retryable":false,"flight":{"id":"` + other + `","state":"failed"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scripted(t, plainly(409, body)).Report(t.Context(), key, ReportRequest{FencingToken: "t", Outcome: "succeeded"})
			require.Equal(t, later, verdictOn(err))
			a, err := scripted(t, plainly(409, body)).Open(t.Context(), key, OpenRequest{})
			require.Empty(t, CodeOf(err))
			require.True(t, a.unsure)
		})
	}
}

// An answer about another flight, or another session, lets nobody act: something between has mixed it up.
func TestAnswerAboutSomethingElse(t *testing.T) {
	key, other := flight.MustKey("default/charge/1"), flight.MustKey("default/charge/2").FlightID().String()
	proceed := `{"decision":"proceed","flight_id":"` + other + `","input":"` + key.FlightID().String() + `","fencing_token":"t","session":"ses_1","trust_ms":9000}`
	replay := `{"decision":"replay","flight":{"id":"` + other + `","state":"succeeded"}}`
	failed := `{"code":"flight_failed","retryable":false,"flight":{"id":"` + other + `","state":"failed"}}`
	for name, answer := range map[string]string{"proceed": plainly(201, proceed), "replay": plainly(200, replay), "failed": plainly(424, failed)} {
		t.Run(name, func(t *testing.T) {
			for ask, with := range map[string]func(*Client) (OpenAnswer, error){
				"open":    func(c *Client) (OpenAnswer, error) { return c.Open(t.Context(), key, OpenRequest{}) },
				"verdict": func(c *Client) (OpenAnswer, error) { return c.Verdict(t.Context(), key, VerdictRequest{}) },
			} {
				a, err := with(scripted(t, answer))
				var unavailable *effect.Unavailable
				require.ErrorAs(t, err, &unavailable, ask)
				require.Empty(t, a.Decision)
				require.True(t, a.unsure, "the open may be carried out: it is to be given back")
			}
		})
	}
	_, err := scripted(t, plainly(200, `{"session":"ses_2","trust_ms":9000}`)).Renew(t.Context(), "ses_1", RenewRequest{})
	require.Error(t, err, "renewed is the other one")
	_, err = scripted(t, plainly(200, `{"id":"`+other+`","state":"succeeded"}`)).Flight(t.Context(), key.FlightID())
	require.Error(t, err)
}

// The bytes of another flight's receipt are none of this one's.
func TestReceiptOfAnotherFlight(t *testing.T) {
	id, other := flight.MustKey("default/charge/1").FlightID(), flight.MustKey("default/charge/2").FlightID()
	body := `{"id":"ch_1"}`
	receipt := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s: %s\r\n%s: sha256:%x\r\n%s: %d\r\n\r\n%s", len(body), wire.HeaderFlightID, other,
		wire.HeaderReceiptDigest, sha256.Sum256([]byte(body)), wire.HeaderReceiptSize, len(body), body)
	_, err := scripted(t, receipt).Receipt(t.Context(), id)
	require.Error(t, err)
	got, err := scripted(t, receipt).Receipt(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, body, string(got.Data))
}

// Where something that is not flightd says that it does not have what is asked for, the next server is asked, and nobody waits.
func TestNextServerWhereAStrangerAnswers(t *testing.T) {
	const page = "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\nX: close\r\n\r\n<html>"
	stranger, flightd := scripted(t, page, page), scripted(t, plainly(200, `{"version":"x"}`))
	c := scripted(t)
	c.servers, c.links = []string{stranger.servers[0], flightd.servers[0]}, []*link{stranger.links[0], flightd.links[0]}
	v, err := c.Version(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x", v.Version)

	c = scripted(t, page, page, page)
	c.servers, c.links = append(c.servers, c.servers[0]), append(c.links, c.links[0])
	_, err = c.Version(t.Context())
	require.Equal(t, Code("internal"), CodeOf(err), "where nobody else is there, that is told, and at once")
	require.ErrorContains(t, err, "not flightd")
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
	server := httptest.NewServer(http.StripPrefix("/base", httpapi.New(httpapitest.New(t).Config())))
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
