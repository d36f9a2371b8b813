package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

// conn is the TCP connection below TLS.
type conn struct {
	net.Conn
	port *Port
	peer Identity // written once, under Port.mu; the zero value: the hello was not checked
}

// track records an open connection, so that Close closes it. If the port is closed, track closes it.
func (p *Port) track(raw net.Conn) (*conn, error) {
	c := &conn{Conn: raw, port: p}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, ErrClosed
	}
	return c, nil
}

// Read returns io.EOF after Close, as if the other end had closed the connection: raft logs every other error.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// Close closes the connection and forgets it.
func (c *conn) Close() error {
	c.port.mu.Lock()
	delete(c.port.conns, c)
	c.port.mu.Unlock()
	return c.Conn.Close()
}

// queue is a net.Listener of the accepted connections of one protocol.
type queue struct {
	conns chan *tls.Conn
	done  chan struct{}
	close func()
	node  nodeAddr
}

func newQueue(node string) *queue {
	q := &queue{conns: make(chan *tls.Conn), done: make(chan struct{}), node: nodeAddr(node)}
	q.close = sync.OnceFunc(func() { close(q.done) })
	return q
}

// put hands a connection to Accept, or returns ErrClosed.
func (q *queue) put(t *tls.Conn) error {
	select {
	case q.conns <- t:
		return nil
	case <-q.done:
		return ErrClosed
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case t := <-q.conns:
		return t, nil
	case <-q.done:
		return nil, ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error { q.close(); return nil }

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.node }

// nodeAddr is the name of a node as an address.
type nodeAddr string

func (a nodeAddr) Network() string { return "flightd" }
func (a nodeAddr) String() string  { return string(a) }
