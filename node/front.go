package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi"
)

// front is the HTTP server. It answers from the first moment to the last: as long as the API is not there it says so.
type front struct {
	listener net.Listener
	server   *http.Server
	starting http.Handler // for as long as there is no api
	api      atomic.Pointer[http.Handler]
	waits    context.Context // of requests; ends when there is no more time for them
	endWaits context.CancelCauseFunc
	guests   guests
}

// errStopping is the cause of the end of requests that a stop cuts off.
var errStopping = errors.New("this node is stopping")

func newFront(l net.Listener) *front {
	f := &front{listener: l, starting: httpapi.Starting()}
	f.waits, f.endWaits = context.WithCancelCause(context.Background())
	f.server = httpapi.Server(l.Addr().String(), f)
	f.server.BaseContext = func(net.Listener) context.Context { return f.waits }
	f.server.ConnState = f.guests.note
	return f
}

func (f *front) url() string { return "http://" + f.listener.Addr().String() }

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
	go func() { served <- f.server.Serve(f.listener) }()
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
	f.guests.stopReading()
	if f.server.Shutdown(ctx) != nil {
		return f.server.Close() // whoever is left sees its connection end
	}
	return nil
}

// guests are the connections that are open.
type guests struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// note follows the server.
func (g *guests) note(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.conns == nil {
			g.conns = make(map[net.Conn]struct{})
		}
		g.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, c)
	}
}

// stopReading lets nobody send any more: a request of which a half is missing would be waited for as long as there is time. Answers
// go out as before.
func (g *guests) stopReading() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		_ = c.SetReadDeadline(time.Now()) // one that is closed reads nothing either
	}
}
