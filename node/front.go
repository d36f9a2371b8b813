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
type front struct {
	server      *http.Server
	starting    http.Handler                 // answers requests until api is set
	api         atomic.Pointer[http.Handler] // nil during the start
	waits       context.Context              // parent of all requests; canceled when a stop interrupts them
	endWaits    context.CancelCauseFunc
	connections *connections
}

// errStopping is the cause when a stop interrupts a request.
var errStopping = errors.New("the node is stopping")

func newFront(l net.Listener) *front {
	f := &front{connections: newConnections(l, maxConnections(descriptors())), starting: httpapi.Starting()}
	f.waits, f.endWaits = context.WithCancelCause(context.Background())
	f.server = httpapi.Server(l.Addr().String(), f)
	f.server.BaseContext = func(net.Listener) context.Context { return f.waits }
	f.server.ConnState = f.connections.note
	return f
}

func (f *front) url() string { return "http://" + f.connections.Addr().String() }

// setAPI makes api serve all requests from now on.
func (f *front) open(api http.Handler) { f.api.Store(&api) }

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if api := f.api.Load(); api != nil {
		(*api).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/livez" {
		_, _ = fmt.Fprintln(w, "ok")
		return
	}
	f.starting.ServeHTTP(w, r)
}

// serve runs the server until ctx ends, then closes all connections.
func (f *front) serve(ctx context.Context) error {
	served := make(chan error, 1) // serve waits for it in every case
	go func() { served <- f.server.Serve(f.connections) }()
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		<-ctx.Done() // drain has shut the server down
		return nil
	case <-ctx.Done():
	}
	f.endWaits(errStopping)
	err := f.server.Close()
	<-served
	return err
}

// drainGrace is how long a stop lets requests finish. It is enough for reports; a request that waits for another
// caller's flight can be repeated at the next process.
const courtesy = 250 * time.Millisecond

// drain accepts no new requests, waits drainGrace for running ones, and then cancels them with the answer "draining".
//
// A canceled request may have proposed a command that the ledger commits later. Repeating the request returns its
// result.
func (f *front) drain(ctx context.Context) error {
	polite, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	if f.server.Shutdown(polite) == nil {
		return nil
	}
	f.endWaits(&effect.Unavailable{Code: "draining", Cause: errStopping})
	f.connections.stopReading()
	if f.server.Shutdown(ctx) != nil {
		return f.server.Close() // closes the connections of the remaining requests
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
	most int

	mu    sync.Mutex              // guards conns
	conns map[net.Conn]connection // all open connections
	left  chan struct{}           // has a value after a connection was closed or became idle: wakes Accept
	over  chan struct{}           // closed with the listener
	close func() error            // closes over and the listener, once
}

// connection is the state of one connection.
type connection struct {
	since time.Time // of the last change of state
	busy  bool      // a request is being served on it
}

func newConnections(l net.Listener, most int) *connections {
	cs := &connections{Listener: l, most: most, conns: make(map[net.Conn]connection), left: make(chan struct{}, 1), over: make(chan struct{})}
	cs.close = sync.OnceValue(func() error {
		close(cs.over)
		return l.Close()
	})
	return cs
}

// Close implements net.Listener.
func (cs *connections) Close() error { return cs.close() }

// Accept implements net.Listener. At the limit it closes the connection that has been idle the longest. If all
// connections are busy, Accept waits until one is idle or closed.
func (cs *connections) Accept() (net.Conn, error) {
	c, err := cs.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for !cs.admit(c) {
		select {
		case <-cs.left:
		case <-cs.over:
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
	}
	return c, nil
}

// tryAdmit adds c to the open connections. False: the limit is reached and no connection is idle.
func (cs *connections) admit(c net.Conn) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.conns) >= cs.most {
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
func (cs *connections) note(c net.Conn, state http.ConnState) {
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
		case cs.left <- struct{}{}:
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
