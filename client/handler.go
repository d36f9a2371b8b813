package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
)

// WithHandler lets h serve all requests in this process, without a connection: the address of Connect is only a name. No token
// is sent, and no environment variable is read. It is for programs that embed a node.
func WithHandler(h http.Handler) Option { return func(o *options) { o.handler = h } }

// handlerTransport calls a handler with each request, and returns its whole answer. An event stream, which never ends, is not
// returned.
type handlerTransport struct{ http.Handler }

// CloseIdleConnections does nothing: there are no connections.
func (handlerTransport) CloseIdleConnections() {}

// RoundTrip implements http.RoundTripper. A handler that breaks its answer off (http.ErrAbortHandler) is an error, as it is over
// a connection.
func (t handlerTransport) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	w := &wholeAnswer{header: make(http.Header)}
	defer func() {
		if broken := recover(); broken != nil {
			answer, err = nil, fmt.Errorf("the answer broke off: %v", broken)
			if broken != http.ErrAbortHandler {
				panic(broken)
			}
		}
	}()
	// A reverse proxy breaks an incomplete answer off only if its context has a server; else it would look complete.
	t.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})))
	if r.Context().Err() != nil { // the answer may be incomplete
		return nil, context.Cause(r.Context())
	}
	w.WriteHeader(http.StatusOK)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r}, nil
}

// wholeAnswer is an http.ResponseWriter that keeps the answer.
type wholeAnswer struct {
	header http.Header
	status int // 0: none yet
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *wholeAnswer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. An interim status is not kept.
func (w *wholeAnswer) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *wholeAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}
