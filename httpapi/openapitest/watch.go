package openapitest

import (
	"bytes"
	"io"
	"net/http"
)

// Watch wraps next. After each request it calls tell with the error of Check, if there is one.
func (c *Checker) Watch(next http.Handler, report func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &Exchange{Method: r.Method, URL: r.URL, RequestHeader: r.Header.Clone()}
		sent := &bytes.Buffer{}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, sent), r.Body}
		watched := &recordingWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(watched, r)
		x.RequestBody, x.Status, x.Header, x.Body = sent.Bytes(), watched.status, watched.Header(), watched.body.Bytes()
		if err := c.Check(x); err != nil {
			report(err)
		}
	})
}

// recordingWriter keeps a copy of the status and the body.
type recordingWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *recordingWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordingWriter) Write(b []byte) (int, error) {
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the underlying writer.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
