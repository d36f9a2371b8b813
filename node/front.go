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

// front is the HTTP server. It answers from the first moment to the last: as long as the API is not there it says so.
type front struct {
	server      *http.Server
	starting    http.Handler // for as long as there is no api
	api         atomic.Pointer[http.Handler]
	waits       context.Context // of requests; ends when there is no more time for them
	endWaits    context.CancelCauseFunc
	connections *connections
}

// errStopping is the cause of the end of requests that a stop cuts off.
var errStopping = errors.New("this node is stopping")

func newFront(l net.Listener) *front {
	f := &front{connections: newConnections(l, maxConnections(descriptors())), starting: httpapi.Starting()}
	f.waits, f.endWaits = context.WithCancelCause(context.Background())
	f.server = httpapi.Server(l.Addr().String(), f)
	f.server.BaseContext = func(net.Listener) context.Context { return f.waits }
	f.server.ConnState = f.connections.note
	return f
}

func (f *front) url() string { return "http://" + f.connections.Addr().String() }

// open hands requests to the API from now on.
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

// serve runs the server until ctx ends.
func (f *front) serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(f.connections) }()
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		<-ctx.Done() // it was drained
		return nil
	case <-ctx.Done():
	}
	f.endWaits(errStopping)
	err := f.server.Close()
	<-served
	return err
}

// courtesy is how long a stop leaves requests alone: reports are done by then, and who waits for somebody else's
// flight may as well wait for the next process.
const courtesy = 250 * time.Millisecond

// drain takes nobody in any more and sees those off who are there. Requests that are cut off change nothing: what they
// proposed is in the ledger or it is not, and asking again tells.
func (f *front) drain(ctx context.Context) error {
	polite, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	if f.server.Shutdown(polite) == nil {
		return nil
	}
	f.endWaits(&effect.Unavailable{Code: "draining", Cause: errStopping})
	f.connections.stopReading()
	if f.server.Shutdown(ctx) != nil {
		return f.server.Close() // whoever is left sees its connection end
	}
	return nil
}

// maxConnections is how many connections may be open under a limit of file descriptors. The rest is for the stores: a node whose ledger can
// open no file ends.
func maxConnections(descriptors uint64) int {
	const least, stores, enough = 8, 48, 8192
	return int(min(max(least, descriptors-min(descriptors, max(stores, descriptors/2), enough)), math.MaxInt32))
}

// descriptors is how many files this process may have open.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return uint64(limit.Cur)
}

// connections are the connections that are open, at most so many. They are also the listener that lets them in.
type connections struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns map[net.Conn]connection
	left  chan struct{} // has a value after a connection was closed or became idle
	over  chan struct{} // closed with the listener
	close func() error
}

// connection is what is known of a connection: since when it has been as it is, and whether a request is being served on it.
type connection struct {
	since time.Time
	busy  bool
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

// Accept implements net.Listener. Where as many connections are open as there is room for, the one that has been idle the longest is
// closed for the new one; where each has a request, the new one waits.
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

// admit takes a connection in, unless there is no room for it.
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
		_ = idle.Close() // its owner connects anew
	}
	cs.conns[c] = connection{since: time.Now()}
	return true
}

// note follows the server.
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

// stopReading lets nobody send any more: a request of which a half is missing would be waited for as long as there is time. Answers
// go out as before.
func (cs *connections) stopReading() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.conns {
		_ = c.SetReadDeadline(time.Now()) // one that is closed reads nothing either
	}
}
