package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/wire"
)

// link carries requests to one server over plain HTTP/1.1. It does what net/http's Transport does for such a server,
// without the two goroutines and the hand-overs that that one spends on every connection: a client that opens and
// reports thousands of flights a second spends most of its time there. Servers behind TLS or a proxy are spoken to
// through net/http.
type link struct {
	host string // for the Host header
	addr string // to dial
	base string // what paths are appended to

	mu     sync.Mutex
	idle   []*conn // the one used last is the last
	closed bool
}

// conn is one connection; one request at a time is on it.
type conn struct {
	net.Conn
	read  *bufio.Reader
	write []byte
	since time.Time // idle since then
}

const (
	maxIdle     = 512
	idleTime    = 30 * time.Second // servers keep idle connections for longer
	dialTimeout = 3 * time.Second
	readBuffer  = 8 << 10
)

// newLink makes the link to a server that can be spoken to plainly; nil for others.
func newLink(server string) *link {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" || u.User != nil {
		return nil
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err != nil || proxy != nil {
		return nil
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "80")
	}
	return &link{host: u.Host, addr: addr, base: u.EscapedPath()}
}

// get gives a connection, an idle one if there is one that is young enough.
func (l *link) get(ctx context.Context) (c *conn, reused bool, err error) {
	l.mu.Lock()
	for n := len(l.idle); n > 0; n = len(l.idle) {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		if time.Since(c.since) < idleTime && quiet(c.Conn) {
			l.mu.Unlock()
			return c, true, nil
		}
		_ = c.Close()
	}
	l.mu.Unlock()
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	plain, err := dialer.DialContext(ctx, "tcp", l.addr)
	if err != nil {
		return nil, false, err
	}
	return &conn{Conn: plain, read: bufio.NewReaderSize(plain, readBuffer)}, false, nil
}

func (l *link) put(c *conn) {
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= maxIdle {
		_ = c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

// drop closes idle connections: they are as dead as one of them was.
func (l *link) drop() {
	l.mu.Lock()
	idle := l.idle
	l.idle = nil
	l.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.drop()
}

// do sends one request and reads its answer whole.
func (l *link) do(ctx context.Context, c *Client, r *request, timeout time.Duration) (response, error) {
	conn, reused, err := l.get(ctx)
	if err != nil {
		return response{}, err
	}
	resp, keep, err := l.exchange(ctx, conn, c, r, timeout)
	if err == nil && keep && conn.read.Buffered() == 0 { // what came behind the answer would be taken for that of the next request
		l.put(conn)
		return resp, nil
	}
	_ = conn.Close()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = &endedError{context.Cause(ctx), err}
	case reused:
		l.drop()
		err = &staleError{err}
	}
	return resp, err
}

// staleError says that a connection failed that had been good before: the server may have closed it in the meantime,
// and a new one may do.
type staleError struct{ error }

func (e *staleError) Unwrap() error { return e.error }

// endedError says that the asker's context has ended, for that cause. Whatever the cause has inside is no server's word about
// what was asked: it may be the error of another call.
type endedError struct{ cause, err error }

func (e *endedError) Error() string        { return e.cause.Error() + ": " + e.err.Error() }
func (e *endedError) Is(target error) bool { return errors.Is(e.cause, target) }
func (e *endedError) Unwrap() error        { return e.err }

// exchange writes the request and reads the answer. keep says that the connection is good for another one.
func (l *link) exchange(ctx context.Context, conn *conn, c *Client, r *request, timeout time.Duration) (resp response, keep bool, err error) {
	deadline := time.Now().Add(timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = conn.SetDeadline(deadline)
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer func() { keep = stop() && keep }() // one that was told to end is not used again
	}
	if conn.write, err = c.appendRequest(conn.write[:0], l, r); err != nil {
		return resp, false, err
	}
	resp.sent = clock.Now()
	if _, err := conn.Conn.Write(conn.write); err != nil {
		return resp, false, err
	}
	keep, err = conn.answer(r, &resp)
	return resp, keep, err
}

var errHeader = errors.New("client: a value with control characters cannot be sent in a header")

// appendRequest writes the request as it goes over the wire.
func (c *Client) appendRequest(b []byte, l *link, r *request) ([]byte, error) {
	b = append(append(b, r.method...), ' ')
	b = append(append(append(b, l.base...), r.path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, l.host...), "\r\nUser-Agent: flightd-go\r\n"...)
	if r.body != nil {
		b = append(append(append(b, "Content-Type: "...), cmp.Or(r.kind, wire.TypeJSON)...), "\r\nContent-Length: "...)
		b = append(strconv.AppendInt(b, int64(len(r.body)), 10), "\r\n"...)
	}
	for _, h := range c.headers(r) {
		if !sendable(h.value) {
			return b, errHeader
		}
		b = append(append(append(append(b, h.name...), ": "...), h.value...), "\r\n"...)
	}
	return append(append(b, "\r\n"...), r.body...), nil
}

// sendable reports whether s can be the value of a header without becoming something else.
func sendable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// answer reads an answer. What is not of the plain kind that flightd itself writes is left to net/http.
func (c *conn) answer(r *request, resp *response) (keep bool, err error) {
	head, err := c.head()
	if err != nil {
		return false, err
	}
	status, length, ledger, plain := parseHead(head)
	if !plain || status < 200 {
		return c.slowAnswer(r, resp)
	}
	resp.status, resp.time = status, ledger
	if status >= 300 || r.receipt != "" {
		_, fields, _ := bytes.Cut(head, []byte("\r\n"))
		header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(fields))).ReadMIMEHeader()
		if err != nil {
			return false, err
		}
		resp.header = http.Header(header)
	}
	if _, err := c.read.Discard(len(head)); err != nil {
		return false, err
	}
	if status == http.StatusNotModified {
		return true, nil
	}
	resp.body = make([]byte, length)
	_, err = io.ReadFull(c.read, resp.body)
	return err == nil, err
}

// head gives the head of the answer without taking it; shorter or empty where it does not fit into the buffer.
func (c *conn) head() ([]byte, error) {
	for n := 1; ; n = c.read.Buffered() + 1 {
		if n > c.read.Size() {
			return nil, nil
		}
		if _, err := c.read.Peek(n); err != nil {
			return nil, err
		}
		have, _ := c.read.Peek(c.read.Buffered())
		if end := bytes.Index(have, []byte("\r\n\r\n")); end >= 0 {
			return have[:end+4], nil
		}
	}
}

// parseHead reads what must be known of a head. plain is false where the answer needs more than this.
func parseHead(head []byte) (status, length int, ledger int64, plain bool) {
	line, rest, ok := bytes.Cut(head, []byte("\r\n"))
	if !ok || len(line) < 12 || string(line[:9]) != "HTTP/1.1 " {
		return 0, 0, 0, false
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, 0, 0, false
	}
	length = -1
	for len(rest) > 2 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		switch {
		case !ok:
			return 0, 0, 0, false
		case bytes.EqualFold(name, []byte("Content-Length")):
			n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || n < 0 || n > maxAnswer || length >= 0 {
				return 0, 0, 0, false
			}
			length = n
		case bytes.EqualFold(name, []byte(wire.HeaderLedgerTime)):
			ledger, _ = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		case bytes.EqualFold(name, []byte("Transfer-Encoding")), bytes.EqualFold(name, []byte("Connection")):
			return 0, 0, 0, false
		}
	}
	return status, length, ledger, length >= 0 || status == http.StatusNotModified
}

// slowAnswer reads any answer that HTTP/1.1 allows.
func (c *conn) slowAnswer(r *request, resp *response) (keep bool, err error) {
	for {
		answer, err := http.ReadResponse(c.read, &http.Request{Method: r.method})
		if err != nil {
			return false, err
		}
		if answer.StatusCode < 200 && answer.StatusCode != http.StatusSwitchingProtocols {
			continue // the answer proper follows
		}
		resp.status, resp.header, resp.time = answer.StatusCode, answer.Header, ledgerTime(answer.Header)
		resp.body, err = readBody(answer)
		return err == nil && !answer.Close, errors.Join(err, answer.Body.Close())
	}
}
