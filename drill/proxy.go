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

// proxy is an HTTP proxy between a caller and flightd, inside the caller's process, that reports when an open was sent.
type proxy struct {
	listener net.Listener
	server   *http.Server
	served   chan struct{}
}

// opensPath is the path of open requests.
const opensPath = "/v1/flights:open"

// startProxy starts a proxy in front of flightd. It calls sent after an open was written and before it is answered.
func startProxy(server string, sent func()) (*proxy, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.In.URL.Path == opensPath {
				trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
					if info.Err == nil {
						sent()
					}
				}}
				r.Out = r.Out.WithContext(httptrace.WithClientTrace(r.Out.Context(), trace))
			}
		},
		// Without a server the connection is closed, as it would be without the proxy.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	r := &proxy{listener: l, server: &http.Server{Handler: reverse, ReadHeaderTimeout: 5 * time.Second}, served: make(chan struct{})}
	go func() { // close waits for it
		defer close(r.served)
		_ = r.server.Serve(l) // returns after close
	}()
	return r, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
}
