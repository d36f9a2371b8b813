package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi"
)

// server is the HTTP server. It runs from the start of the process to its end and answers "starting" until the API is
// set.
type server struct {
	http           *http.Server
	starting       http.Handler                 // answers requests until api is set
	api            atomic.Pointer[http.Handler] // nil during the start
	requestCtx     context.Context              // parent of all requests; canceled when a stop interrupts them
	cancelRequests context.CancelCauseFunc
	connections    *connections
}

// errStopping is the cause when a stop interrupts a request.
var errStopping = errors.New("the node is stopping")

func newServer(l net.Listener) *server {
	s := &server{connections: newConnections(l, maxConnections(descriptors())), starting: httpapi.Starting()}
	s.requestCtx, s.cancelRequests = context.WithCancelCause(context.Background())
	s.http = httpapi.Server(l.Addr().String(), s)
	s.http.BaseContext = func(net.Listener) context.Context { return s.requestCtx }
	s.http.ConnState = s.connections.onStateChange
	return s
}

func (s *server) url() string { return "http://" + s.connections.Addr().String() }

// setAPI makes api serve all requests from now on.
func (s *server) setAPI(api http.Handler) { s.api.Store(&api) }

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if api := s.api.Load(); api != nil {
		(*api).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/livez" {
		_, _ = fmt.Fprintln(w, "ok")
		return
	}
	s.starting.ServeHTTP(w, r)
}

// serve runs the server until ctx ends, then closes all connections.
func (s *server) serve(ctx context.Context) error {
	served := make(chan error, 1) // serve waits for it in every case
	go func() { served <- s.http.Serve(s.connections) }()
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		<-ctx.Done() // drain has shut the server down
		return nil
	case <-ctx.Done():
	}
	s.cancelRequests(errStopping)
	err := s.http.Close()
	<-served
	return err
}

// drainGrace is how long a stop lets requests finish. It is enough for reports; a request that waits for another
// caller's flight can be repeated at the next process.
const drainGrace = 250 * time.Millisecond

// drain accepts no new requests, waits drainGrace for running ones, and then cancels them with the answer "draining".
//
// A canceled request may have proposed a command that the ledger commits later. Repeating the request returns its
// result.
func (s *server) drain(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, drainGrace)
	defer cancel()
	if s.http.Shutdown(grace) == nil {
		return nil
	}
	s.cancelRequests(&effect.Unavailable{Code: "draining", Cause: errStopping})
	s.connections.stopReading()
	if s.http.Shutdown(ctx) != nil {
		return s.http.Close() // closes the connections of the remaining requests
	}
	return nil
}

// maxConnections returns the largest number of open connections for a limit of file descriptors. The rest of the limit
// is for the stores: the process ends if the ledger cannot open a file.
func maxConnections(descriptors uint64) int {
	const least, stores, enough = 8, 48, 8192
	return int(min(max(least, descriptors-min(descriptors, max(stores, descriptors/2), enough)), math.MaxInt32))
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
type connections struct {
	net.Listener
	limit int

	mu        sync.Mutex              // guards conns
	conns     map[net.Conn]connection // all open connections
	freed     chan struct{}           // has a value after a connection was closed or became idle: wakes Accept
	closed    chan struct{}           // closed with the listener
	closeOnce func() error            // closes over and the listener, once
}

// connection is the state of one connection.
type connection struct {
	since time.Time // of the last change of state
	busy  bool      // a request is being served on it
}

func newConnections(l net.Listener, limit int) *connections {
	cs := &connections{Listener: l, limit: limit, conns: make(map[net.Conn]connection), freed: make(chan struct{}, 1), closed: make(chan struct{})}
	cs.closeOnce = sync.OnceValue(func() error {
		close(cs.closed)
		return l.Close()
	})
	return cs
}

// Close implements net.Listener.
func (cs *connections) Close() error { return cs.closeOnce() }

// Accept implements net.Listener. At the limit it closes the connection that has been idle the longest. If all
// connections are busy, Accept waits until one is idle or closed.
func (cs *connections) Accept() (net.Conn, error) {
	c, err := cs.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for !cs.tryAdmit(c) {
		select {
		case <-cs.freed:
		case <-cs.closed:
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
	}
	return c, nil
}

// tryAdmit adds c to the open connections. False: the limit is reached and no connection is idle.
func (cs *connections) tryAdmit(c net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.conns) >= cs.limit {
		var idle net.Conn
		for other, is := range cs.conns {
			if !is.busy && (idle == nil || is.since.Before(cs.conns[idle].since)) {
				idle = other
			}
		}
		if idle == nil {
			return false
		}
		delete(cs.conns, idle)
		_ = idle.Close() // HTTP clients reconnect
	}
	cs.conns[c] = connection{since: time.Now()}
	return true
}

// onStateChange implements http.Server.ConnState.
func (cs *connections) onStateChange(c net.Conn, state http.ConnState) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	_, known := cs.conns[c]
	switch state {
	case http.StateActive, http.StateIdle:
		if known {
			cs.conns[c] = connection{since: time.Now(), busy: state == http.StateActive}
		}
	case http.StateClosed, http.StateHijacked:
		delete(cs.conns, c)
	}
	if state != http.StateActive {
		select {
		case cs.freed <- struct{}{}:
		default:
		}
	}
}

// stopReading makes all reads fail, so that a stop does not wait for the rest of a half-sent request. Responses are
// still written.
func (cs *connections) stopReading() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.conns {
		_ = c.SetReadDeadline(time.Now()) // it fails for a closed connection only
	}
}
