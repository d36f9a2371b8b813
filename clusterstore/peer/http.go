package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is how many requests wait in one connection. It is far above the waiting requests that a node accepts.
	maxStreams = 1 << 16
	// initialStreams is what net/http's client assumes for maxStreams until the server has sent its settings.
	initialStreams = 100
	// An idle connection is checked with a ping after pingAfter; without an answer within pingTimeout it ends.
	pingAfter, pingTimeout = time.Second, time.Second

	streamWindow = 1 << 20  // of a body that its reader has not read yet
	serverWindow = 16 << 20 // of all bodies of requests in a connection
	// clientWindow is of all bodies of answers in a connection, and net/http's default: a smaller one would let a few slow readers
	// stop all other answers.
	clientWindow = 1 << 30
)

// DialError says that a request was not sent, because there was no connection to its node.
type DialError struct {
	Node string
	Err  error
}

func (e *DialError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, such as *RefusedError.
func (e *DialError) Unwrap() error { return e.Err }

type identityKey struct{}

// From returns the node that sent a request, from the context of the request.
func From(ctx context.Context) (id Identity, found bool) {
	id, found = ctx.Value(identityKey{}).(Identity)
	return id, found
}

// SetHandler sets the handler of the requests of other nodes.
func (p *Port) SetHandler(h http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler = h
}

// setUpHTTP makes the server and the transport.
func (p *Port) setUpHTTP() {
	var h2 http.Protocols
	h2.SetHTTP2(true)
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.handle), Protocols: &h2, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: serverWindow,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, identityKey{}, c.(*tls.Conn).NetConn().(*conn).peer)
		},
	}
	p.transport = &http.Transport{
		Protocols: &h2, DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: clientWindow,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return p.dial(ctx, hostOf(address), protoHTTP)
		},
	}
}

// serveHTTP serves the connections of other nodes until the port is closed.
func (p *Port) serveHTTP() { _ = p.server.Serve(p.http) }

// handle calls the handler. Close waits for it.
func (p *Port) handle(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	h, closed := p.handler, p.closed
	if !closed {
		p.running.Add(1)
	}
	p.mu.Unlock()
	if closed {
		panic(http.ErrAbortHandler)
	}
	defer p.running.Done()
	if h == nil {
		http.Error(w, "node "+p.founding.Self.Name+" is starting: repeat the request", http.StatusServiceUnavailable)
		return
	}
	h.ServeHTTP(w, r)
}

// Client returns the transport of requests to a node. All requests use one HTTP/2 connection, which is made when the first one
// needs it. The host of a request's URL is not used, and its scheme is https.
//
// A request is sent once and never repeated. If there was no connection for it, the error is *DialError; after every other
// error the node may have got the request. If the node is dead, the error comes after about two seconds.
func (p *Port) Client(node string) http.RoundTripper {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.remotes[node]
	if r == nil {
		r = &remote{port: p, node: node}
		p.remotes[node] = r
	}
	return r
}

// remote is the http.RoundTripper to one node.
type remote struct {
	port *Port
	node string

	mu      sync.Mutex
	conn    *http.ClientConn // the connection in use; nil: none
	dialing *dialing         // nil: none
}

// dialing is one attempt to connect, which all requests share that need a connection in the meantime.
type dialing struct {
	done chan struct{} // closed at the end
	conn *http.ClientConn
	err  error
}

// RoundTrip implements http.RoundTripper.
func (r *remote) RoundTrip(request *http.Request) (*http.Response, error) {
	c, err := r.connection(request.Context())
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, &DialError{Node: r.node, Err: err}
	}
	return c.RoundTrip(request)
}

// connection returns the connection, and makes it if there is none that takes one more request.
func (r *remote) connection(ctx context.Context) (*http.ClientConn, error) {
	r.mu.Lock()
	if r.conn != nil && r.conn.Available() > 0 {
		defer r.mu.Unlock()
		return r.conn, nil
	}
	d := r.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		if !r.port.spawn(func() { r.dial(d) }) {
			r.mu.Unlock()
			return nil, ErrClosed
		}
		r.dialing = d
	}
	r.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// dial makes a connection and takes it into use.
func (r *remote) dial(d *dialing) {
	d.conn, d.err = r.port.dialHTTP(r.node)
	r.mu.Lock()
	before := r.conn
	r.conn, r.dialing = d.conn, nil
	r.mu.Unlock()
	close(d.done)
	if before != nil { // it takes no more requests: it is closed, or its stream ids are used up
		closeIdle := func(c *http.ClientConn) {
			if c.InFlight() == 0 {
				_ = c.Close()
			}
		}
		before.SetStateHook(closeIdle)
		closeIdle(before)
	}
}

// dialHTTP connects to a node and waits for the settings of its server: until then, net/http allows 100 requests.
func (p *Port) dialHTTP(node string) (*http.ClientConn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout+2*p.helloTimeout)
	defer cancel()
	c, err := p.transport.NewClientConn(ctx, "https", net.JoinHostPort(node, "443"))
	if err != nil {
		return nil, err
	}
	settled := make(chan struct{})
	settle := sync.OnceFunc(func() { close(settled) })
	check := func(c *http.ClientConn) {
		if c.Available() > initialStreams || c.Err() != nil {
			settle()
		}
	}
	c.SetStateHook(check)
	check(c)
	select {
	case <-settled:
		c.SetStateHook(nil)
		err = c.Err()
	case <-ctx.Done():
		err = errors.New("the node does not answer")
	}
	if err != nil {
		_ = c.Close()
		return nil, cmp.Or(context.Cause(p.ctx), err)
	}
	return c, nil
}
