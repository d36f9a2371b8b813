package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The protocols of the port, as TLS negotiates them (ALPN).
const (
	protoRaft = "flightd-raft"
	protoHTTP = "h2"
)

const (
	helloTimeout = 5 * time.Second // for the TLS handshake and the hellos
	dialTimeout  = time.Second     // for the TCP connection
	maxHellos    = 64              // accepted connections that have not sent their hello
)

// Config configures a Port.
type Config struct {
	// Founding is the founding directory of this node.
	Founding *Founding
	// Instance is the random id (UUID) by which other nodes tell this node from a copy, or from one that has lost its disk.
	Instance string
	// Listener replaces the listener on Founding.Self.Address. The Port closes it.
	Listener net.Listener
	// Admit is asked about the other end of every connection, accepted or dialled, and returns nil or the reason against it,
	// which the other end is told. It is called concurrently and must not block.
	Admit func(Identity) error
	// Handler serves the requests of other nodes; SetHandler sets it later. Without one they are answered 503.
	Handler http.Handler
	// Logger gets a line for a refused connection, at most one in RefusalPause for each address. Default: none.
	Logger *slog.Logger
	// HelloTimeout bounds the TLS handshake and the hellos of a connection. Default: 5 s.
	HelloTimeout time.Duration
	// RefusalPause is the least time between two lines about refused connections of one address. Default: 1 s; negative: none.
	RefusalPause time.Duration
}

// ErrClosed is returned for connections and requests after Port.Close.
var ErrClosed = errors.New("the node port is closed")

// Port is the listener of a node for the other nodes of its cluster, and its connections to them.
type Port struct {
	founding     *Founding
	instance     string
	listener     net.Listener
	log          *slog.Logger
	helloTimeout time.Duration
	refusalPause time.Duration

	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // goroutines and handlers; spawn adds to it

	http      *queue // accepted HTTP/2 connections
	server    *http.Server
	transport *http.Transport // makes the connections of remotes

	mu            sync.Mutex
	closed        bool
	admitFunc     func(Identity) error
	handler       http.Handler
	conns         map[*conn]struct{}   // all open connections
	refusals      map[string]time.Time // when a refused connection of an IP address was last logged
	raft          *queue               // accepted raft connections; nil before RaftTransport
	raftTransport *raft.NetworkTransport
	remotes       map[string]*remote
}

// Open opens the port of a node. The caller closes it.
func Open(cfg Config) (*Port, error) {
	switch {
	case cfg.Founding == nil || cfg.Admit == nil:
		return nil, errors.New("open the node port: Founding and Admit are required")
	case !isUUID(cfg.Instance):
		return nil, fmt.Errorf("open the node port: instance %q is not a UUID", cfg.Instance)
	}
	p := &Port{
		founding: cfg.Founding, instance: cfg.Instance, listener: cfg.Listener, log: cfg.Logger, helloTimeout: cfg.HelloTimeout, refusalPause: cmp.Or(cfg.RefusalPause, time.Second),
		admitFunc: cfg.Admit, handler: cfg.Handler, conns: make(map[*conn]struct{}), remotes: make(map[string]*remote), refusals: make(map[string]time.Time),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.helloTimeout <= 0 {
		p.helloTimeout = helloTimeout
	}
	if p.listener == nil {
		var err error
		if p.listener, err = net.Listen("tcp", p.founding.Self.Address); err != nil {
			return nil, fmt.Errorf("open the node port: %w", err)
		}
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.http = newQueue(p.founding.Self.Name)
	p.setUpHTTP()
	p.spawn(p.serveHTTP)
	p.spawn(p.accept)
	return p, nil
}

// SetAdmit replaces Config.Admit and closes the connections whose other end the new function rejects.
func (p *Port) SetAdmit(admit func(Identity) error) {
	p.mu.Lock()
	p.admitFunc = admit
	var known []*conn
	for c := range p.conns {
		if c.peer != (Identity{}) {
			known = append(known, c)
		}
	}
	p.mu.Unlock()
	for _, c := range known {
		if err := admit(c.peer); err != nil {
			p.log.Warn("peer: connection closed", "node", c.peer.Node, "instance", c.peer.Instance, "reason", err)
			_ = c.Close()
		}
	}
}

// admit asks the function of Config.Admit or SetAdmit. The identity is recorded first, so a SetAdmit in between sees it.
func (p *Port) admit(c *conn, identity Identity) error {
	p.mu.Lock()
	c.peer = identity
	admit := p.admitFunc
	p.mu.Unlock()
	return admit(identity)
}

// Close closes the listener, all connections and the transport of raft, and returns after all handlers of requests and all
// goroutines of the Port have ended. Requests end with an error, and the contexts of handlers end. The error is always nil.
func (p *Port) Close() error {
	p.mu.Lock()
	p.closed = true
	transport := p.raftTransport
	var open []*conn
	for c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	p.cancel(ErrClosed)
	_ = p.listener.Close()
	if transport != nil {
		_ = transport.Close()
	}
	_ = p.http.Close()
	for _, c := range open { // before the connections of TLS above them, whose Close can block while the other end does not read
		_ = c.Close()
	}
	_ = p.server.Close()
	p.running.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for. It returns false if the port is closed.
func (p *Port) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Go(f)
	return true
}

// accept accepts connections. Each one shakes hands in its own goroutine, so a slow one does not delay the others.
func (p *Port) accept() {
	hellos := make(chan struct{}, maxHellos)
	for delay := time.Duration(0); ; {
		raw, err := p.listener.Accept()
		if p.ctx.Err() != nil {
			if err == nil {
				_ = raw.Close()
			}
			return
		}
		if err != nil { // such as too many open files
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			p.log.Error("peer: accept a connection", "error", err)
			select {
			case <-p.ctx.Done():
			case <-time.After(delay):
			}
			continue
		}
		delay = 0
		select {
		case hellos <- struct{}{}:
		default:
			p.logRefusal(raw, fmt.Errorf("%d connections have not sent their hello", maxHellos))
			_ = raw.Close()
			continue
		}
		if !p.spawn(func() {
			defer func() { <-hellos }()
			if err := p.receive(raw); err != nil && p.ctx.Err() == nil {
				p.logRefusal(raw, err)
			}
		}) {
			_ = raw.Close()
		}
	}
}

// maxRefusals is how many addresses logRefusal remembers. While all of them were just logged, no other one is.
const maxRefusals = 1024

// logRefusal logs that an accepted connection was refused, unless its address was logged less than refusalPause ago.
func (p *Port) logRefusal(raw net.Conn, why error) {
	from, now := raw.RemoteAddr().String(), time.Now()
	p.mu.Lock()
	maps.DeleteFunc(p.refusals, func(_ string, at time.Time) bool { return now.Sub(at) >= p.refusalPause })
	_, logged := p.refusals[hostOf(from)]
	logged = logged || len(p.refusals) >= maxRefusals
	if !logged {
		p.refusals[hostOf(from)] = now
	}
	p.mu.Unlock()
	if !logged {
		p.log.Warn("peer: connection refused", "from", from, "error", why)
	}
}

// receive shakes hands on an accepted connection and hands it to raft or to the HTTP server. After an error it is closed.
func (p *Port) receive(raw net.Conn) (err error) {
	c, err := p.track(raw)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(p.helloTimeout))
	config := p.founding.TLS()
	config.NextProtos = []string{protoRaft, protoHTTP}
	t := tls.Server(c, config)
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	if err := t.Handshake(); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	proto := t.ConnectionState().NegotiatedProtocol
	if proto == "" { // crypto/tls lets such a client pass if it offers http/1.1 or nothing
		return fmt.Errorf("the other end offers neither %s nor %s in TLS", protoRaft, protoHTTP)
	}
	h, err := readHello(t)
	if err != nil {
		return fmt.Errorf("read the hello: %w", err)
	}
	q, refused := p.queueOf(proto), p.check(c, t, &h)
	if refused == nil && q == nil {
		refused = &RefusedError{By: p.founding.Self.Name, Reason: "its ledger has not started", Code: CodeStarting}
	}
	if refused != nil {
		return errors.Join(refused, writeHello(t, &hello{Node: refused.By, Error: refused.Reason, Code: refused.Code}))
	}
	if err := writeHello(t, p.own(h.Node)); err != nil {
		return fmt.Errorf("answer the hello of node %s: %w", h.Node, err)
	}
	_ = c.SetDeadline(time.Time{})
	return q.put(t)
}

// queueOf returns the queue of a protocol, or nil if raft has no transport.
func (p *Port) queueOf(proto string) *queue {
	if proto == protoHTTP {
		return p.http
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raft
}

// dial connects to a node and shakes hands. If a check fails at either end, the error is *RefusedError.
func (p *Port) dial(ctx context.Context, node, proto string) (*tls.Conn, error) {
	to, found := p.founding.Node(node)
	if !found || to.Name == p.founding.Self.Name {
		return nil, fmt.Errorf("connect to node %q: %s names no such other node", node, foundingFile)
	}
	t, err := p.dialAddress(ctx, to, proto)
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", node, to.Address, err)
	}
	return t, nil
}

func (p *Port) dialAddress(ctx context.Context, to Node, proto string) (t *tls.Conn, err error) {
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to.Address)
	if err != nil {
		return nil, err
	}
	c, err := p.track(raw)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(p.helloTimeout))
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		if !stop() { // the connection is closed
			err = context.Cause(ctx)
		}
		if err != nil {
			_ = c.Close()
		}
	}()
	config := p.founding.TLS()
	config.NextProtos, config.ServerName = []string{proto}, serverName(to.Name, p.founding.ClusterID)
	t = tls.Client(c, config)
	if err := t.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w; check that one run of flightd cluster found made the directories of both nodes", err)
	}
	if err := writeHello(t, p.own(to.Name)); err != nil {
		return nil, fmt.Errorf("send the hello: %w", err)
	}
	h, err := readHello(t)
	if err != nil { // with TLS 1.3, the other end rejects this node's certificate after the handshake
		return nil, fmt.Errorf("read the answer to the hello: %w; the log of node %s says why", err, to.Name)
	}
	if h.Error != "" {
		return nil, &RefusedError{By: to.Name, Reason: h.Error, Code: h.Code}
	}
	if refused := p.check(c, t, &h); refused != nil {
		return nil, refused
	}
	return t, c.SetDeadline(time.Time{})
}
