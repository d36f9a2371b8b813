package node

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/cert"
)

// maxConnections returns the largest number of open connections for a limit of file descriptors. The rest of the limit
// is for the stores: the process ends if the ledger cannot open a file. A connection takes up to 64 KiB of memory, so
// there are never more than 8,192.
func maxConnections(descriptors uint64) int {
	const least, most = 8, 8192
	stores := min(descriptors, max(48, descriptors/2), 8192)
	return int(min(max(least, descriptors-stores), most))
}

// descriptors returns the limit of open files of this process.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return uint64(limit.Cur)
}

// connections is a listener with an upper limit of open connections.
//
// A connection *waits for its caller* until a request has arrived completely: during the TLS handshake, the headers and
// the body, and between two requests. It also waits for its caller while a write of an answer blocks. Callers decide how
// long that takes, so at the limit such connections are closed for new ones, the one that has waited the longest first.
// Other connections with a complete request are never closed here: long polls, and streams without news.
// A connection may wait for the time of grace in any case: callers that reconnect as fast as they can would otherwise
// close the connections of others before a request can arrive.
//
// A remote address may have a quarter of the limit, loopback addresses all of it.
type connections struct {
	net.Listener
	limit     int
	grace     time.Duration // evictionGrace
	certs     *cert.Served  // nil: plain HTTP
	plainHTTP func() []byte // the answer to plain HTTP where TLS is spoken

	mu        sync.Mutex               // guards open and perRemote
	open      map[*connection]struct{} // all open connections
	perRemote map[netip.Prefix]int     // their number by connection.remote
	freed     chan struct{}            // has a value after a connection was closed or waits for its caller: wakes Accept
	closed    chan struct{}            // closed with the listener
	closeOnce func() error             // closes closed and the listener, once
}

// evictionGrace is enough for a TLS handshake and a small request over a slow network.
const evictionGrace = 500 * time.Millisecond

// answerTime is how long a caller may take to read an answer, from its first byte. Streams move that deadline.
const answerTime = 20 * time.Second

func newConnections(l net.Listener, limit int, certs *cert.Served) *connections {
	cs := &connections{
		Listener: l, limit: limit, grace: evictionGrace, certs: certs, plainHTTP: httpapi.PlainHTTP(),
		open: make(map[*connection]struct{}), perRemote: make(map[netip.Prefix]int),
		freed: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	cs.closeOnce = sync.OnceValue(func() error {
		close(cs.closed)
		return l.Close()
	})
	return cs
}

// watch sets the callbacks by which the server of these connections reports their states.
func (cs *connections) watch(s *http.Server) {
	s.ConnState = cs.onStateChange
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return httpapi.WithReceived(ctx, connectionOf(c).onReceived)
	}
}

// Close implements net.Listener.
func (cs *connections) Close() error { return cs.closeOnce() }

// Accept implements net.Listener. At the limit it waits until a connection may be closed for the new one, or is closed.
// It closes a new connection at once if its remote address has its share, and no connection of that share may be closed.
func (cs *connections) Accept() (net.Conn, error) {
	for {
		raw, err := cs.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: raw, owner: cs, remote: remoteOf(raw.RemoteAddr()), expectsTLS: cs.certs != nil}
		result := cs.tryAdmit(c)
		for ; result == full; result = cs.tryAdmit(c) {
			retry := time.NewTimer(cs.grace / 8)
			select {
			case <-cs.freed:
			case <-retry.C:
			case <-cs.closed:
				retry.Stop()
				return nil, errors.Join(net.ErrClosed, raw.Close())
			}
			retry.Stop()
		}
		switch {
		case result == rejected:
			_ = raw.Close()
		case cs.certs != nil:
			return tls.Server(c, cs.certs.Config), nil
		default:
			return c, nil
		}
	}
}

// admission is the result of tryAdmit.
type admission uint8

const (
	admitted admission = iota
	full               // no connection may be closed for the new one
	rejected           // the remote address has its share, and none of it may be closed
)

// tryAdmit adds c to the open connections, and closes another one for it if necessary.
func (cs *connections) tryAdmit(c *connection) admission {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.remote.IsValid() && cs.perRemote[c.remote] >= max(1, cs.limit/4) {
		if !cs.evict(func(other *connection) bool { return other.remote == c.remote }) {
			return rejected
		}
	}
	if len(cs.open) >= cs.limit && !cs.evict(func(*connection) bool { return true }) {
		return full
	}
	c.waiting.Store(monotonic())
	cs.open[c] = struct{}{}
	cs.perRemote[c.remote]++
	return admitted
}

// evict closes the connection that has waited for its caller the longest, of those that match. It returns false if none
// has waited for longer than the time of grace. The caller holds mu.
func (cs *connections) evict(match func(*connection) bool) bool {
	for {
		var oldest *connection
		since := monotonic() - int64(cs.grace)
		for c := range cs.open {
			if at := c.waiting.Load(); at != 0 && at < since && match(c) {
				oldest, since = c, at
			}
		}
		if oldest == nil {
			return false
		}
		if oldest.waiting.CompareAndSwap(since, evicted) { // else its request has arrived meanwhile
			cs.forget(oldest)
			_ = oldest.Conn.Close() // HTTP clients reconnect; tls.Conn.Close could block here
			return true
		}
	}
}

// forget removes a connection that was closed. The caller holds mu.
func (cs *connections) forget(c *connection) {
	if _, known := cs.open[c]; !known {
		return
	}
	delete(cs.open, c)
	if cs.perRemote[c.remote]--; cs.perRemote[c.remote] == 0 {
		delete(cs.perRemote, c.remote)
	}
}

// onStateChange implements http.Server.ConnState. The server reports http.StateActive when the headers have arrived.
func (cs *connections) onStateChange(conn net.Conn, state http.ConnState) {
	c := connectionOf(conn)
	switch state {
	case http.StateActive, http.StateIdle:
		c.startWaiting()
	}
	if state != http.StateActive {
		cs.wakeAccept()
	}
}

func (cs *connections) wakeAccept() {
	select {
	case cs.freed <- struct{}{}:
	default:
	}
}

// stopReading makes all reads fail, so that a stop does not wait for the rest of a half-sent request. Responses are
// still written.
func (cs *connections) stopReading() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		_ = c.SetReadDeadline(time.Now()) // it fails for a closed connection only
	}
}

// connection is one open connection. With TLS it lies under the *tls.Conn that the server has.
type connection struct {
	net.Conn
	owner  *connections
	remote netip.Prefix // zero for a loopback address

	// waiting is the monotonic time at which the connection began to wait for its caller; 0: it has a complete request,
	// and no write blocks; evicted: it was closed for another one.
	waiting    atomic.Int64
	answering  atomic.Bool // the answer to the complete request has begun
	expectsTLS bool        // no byte was read yet, and TLS is spoken here
}

// evicted is the value of connection.waiting after the connection was closed for another one.
const evicted = math.MaxInt64

var processStart = time.Now()

// monotonic returns a positive time of the monotonic clock.
func monotonic() int64 { return 1 + int64(time.Since(processStart)) }

// connectionOf returns the connection behind a connection of the server.
func connectionOf(c net.Conn) *connection {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*connection)
}

// remoteOf returns the address whose connections are counted together; zero for loopback, which is not counted. In IPv6
// a caller has a whole /64.
func remoteOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

func (c *connection) startWaiting() {
	if at := c.waiting.Load(); at != evicted {
		c.waiting.CompareAndSwap(at, monotonic())
	}
}

// onReceived is called when a request has arrived completely.
func (c *connection) onReceived() {
	c.answering.Store(false)
	if at := c.waiting.Load(); at != evicted {
		c.waiting.CompareAndSwap(at, 0)
	}
}

// Write implements net.Conn. While a part of an answer is written, the connection waits for its caller. The first part
// sets the deadline of the answer. An interim response, before the request is complete, does neither.
func (c *connection) Write(p []byte) (int, error) {
	began := monotonic()
	if !c.waiting.CompareAndSwap(0, began) {
		return c.Conn.Write(p)
	}
	if c.answering.CompareAndSwap(false, true) {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(answerTime)) // it fails for a closed connection only
	}
	n, err := c.Conn.Write(p)
	c.waiting.CompareAndSwap(began, 0) // else the connection was closed for another one
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.owner.mu.Lock()
	c.owner.forget(c)
	c.owner.mu.Unlock()
	err := c.Conn.Close()
	c.owner.wakeAccept()
	return err
}

// Bounds of an answer to plain HTTP: its connection is closed after this time, or this many bytes of the request.
const (
	plainHTTPTime  = 2 * time.Second
	plainHTTPBytes = 512 << 10
)

// errPlainHTTP ends the TLS handshake of a client that speaks plain HTTP.
var errPlainHTTP = errors.New("the client speaks plain HTTP")

// Read implements net.Conn. A client that speaks plain HTTP where TLS is spoken is answered here, and Read fails. The
// first byte decides: no TLS record begins with a letter.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.expectsTLS || n == 0 {
		return n, err
	}
	c.expectsTLS = false
	if letter := p[0] | 0x20; letter < 'a' || letter > 'z' {
		return n, err
	}
	c.rejectPlainHTTP()
	return 0, errPlainHTTP
}

// rejectPlainHTTP answers without a look at the request. Unread bytes at a close would make the kernel reset the
// connection, and the client could lose the answer, so the rest of the request is read and dropped.
func (c *connection) rejectPlainHTTP() {
	_ = c.SetDeadline(time.Now().Add(plainHTTPTime))
	if _, err := c.Write(c.owner.plainHTTP()); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, c.Conn, plainHTTPBytes)
}
