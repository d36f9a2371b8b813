package etcdtest

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// Proxy forwards connections of clients to a server. It can discard the bytes of one direction, like a one-way
// partition: the connection remains open and neither side gets an error.
type Proxy struct {
	Socket string // for clients

	target string
	listen net.Listener
	work   sync.WaitGroup // all goroutines; the end of the test waits for them

	mu       sync.Mutex // guards the fields below
	requests bool       // discard bytes to the server
	answers  bool       // discard bytes from the server
	conns    map[net.Conn]struct{}
}

// NewProxy starts a proxy for the socket target. It is stopped when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{Socket: filepath.Join(socketDir(t), "x"), target: target, conns: make(map[net.Conn]struct{})}
	var err error
	if p.listen, err = net.Listen("unix", p.Socket); err != nil {
		t.Fatal(err)
	}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = p.listen.Close()
		p.breakAll()
		p.work.Wait()
	})
	return p
}

// Cut discards requests, answers, or both. A connection that has lost bytes is unusable: Cut(false, false) closes all
// connections, and clients reconnect.
func (p *Proxy) Cut(requests, answers bool) {
	p.mu.Lock()
	p.requests, p.answers = requests, answers
	p.mu.Unlock()
	if !requests && !answers {
		p.breakAll()
	}
}

func (p *Proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.work.Go(func() { p.copy(server, client, &p.requests) })
		p.work.Go(func() { p.copy(client, server, &p.answers) })
	}
}

func (p *Proxy) copy(to, from net.Conn, swallow *bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		lost := *swallow
		p.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
