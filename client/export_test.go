package client

import (
	"context"
	"net"
	"sync"
)

// PipeNet is a network in memory, so that a server and its client can live in one testing/synctest bubble.
type PipeNet struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func NewPipeNet() *PipeNet {
	return &PipeNet{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// WithPipeNet lets a client dial its servers over that network.
func WithPipeNet(n *PipeNet) Option { return func(o *options) { o.dial = n.dial } }

func (n *PipeNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (n *PipeNet) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *PipeNet) Close() error {
	n.close.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (n *PipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// CloseIdleConnections makes the next request open a connection.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// SendSpoolAgain sends each spooled report once, as the client does periodically.
func (c *Client) SendSpoolAgain(ctx context.Context) { c.sendSpooled(ctx, c.spool.names()) }

// Waiting returns how many requests wait for a batch to the first server.
func (c *Client) Waiting() int {
	g := &c.gatherers[0]
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}
