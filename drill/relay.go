package drill

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"time"
)

// relay stands between a caller and flightd, inside the caller's process, and sees requests leave.
type relay struct {
	listener net.Listener
	server   *http.Server
	served   chan struct{}
}

// opensPath is where flights are asked for.
const opensPath = "/v1/flights:open"

// startRelay serves in front of flightd. left is called when an open has been written out and is not answered yet.
func startRelay(server string, left func()) (*relay, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.In.URL.Path == opensPath {
				trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
					if info.Err == nil {
						left()
					}
				}}
				r.Out = r.Out.WithContext(httptrace.WithClientTrace(r.Out.Context(), trace))
			}
		},
		// A server that is not there looks to the caller as it would without the relay: the connection ends.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	r := &relay{listener: l, server: &http.Server{Handler: proxy, ReadHeaderTimeout: 5 * time.Second}, served: make(chan struct{})}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(l) // it ends by close
	}()
	return r, nil
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close()
	}
	<-r.served
}
