package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/console"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/cert"
)

// server is the HTTP server. It runs from the start of the process to its end and answers "starting" until the API is
// set.
type server struct {
	http           *http.Server
	console        http.Handler                 // serves the files of the console at every time: they hold no data
	starting       http.Handler                 // answers requests until api is set
	api            atomic.Pointer[http.Handler] // nil during the start
	requestCtx     context.Context              // parent of all requests; canceled when a stop interrupts them
	cancelRequests context.CancelCauseFunc
	connections    *connections
}

// errStopping is the cause when a stop interrupts a request.
var errStopping = errors.New("the node is stopping")

// newServer returns a server for at most limit connections. It speaks TLS with certs, and plain HTTP if certs is nil.
func newServer(l net.Listener, limit int, certs *cert.Served, log *slog.Logger) *server {
	s := &server{connections: newConnections(l, limit, certs), console: console.Handler(), starting: httpapi.Starting()}
	s.requestCtx, s.cancelRequests = context.WithCancelCause(context.Background())
	s.http = httpapi.Server(l.Addr().String(), s)
	s.http.ErrorLog = httpErrors(log)
	s.http.BaseContext = func(net.Listener) context.Context { return s.requestCtx }
	s.connections.watch(s.http)
	return s
}

func (s *server) url() string {
	if s.connections.certs != nil {
		return "https://" + s.connections.Addr().String()
	}
	return "http://" + s.connections.Addr().String()
}

// setAPI makes api serve all requests from now on.
func (s *server) setAPI(api http.Handler) { s.api.Store(&api) }

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if console.Serves(r.URL.Path) {
		s.console.ServeHTTP(w, r)
		return
	}
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
