package openapitest

import (
	"bytes"
	"io"
	"net/http"
)

// Watch gives a handler that does what next does, and then tells what the document does not allow about it.
func (c *Checker) Watch(next http.Handler, tell func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &Exchange{Method: r.Method, URL: r.URL, RequestHeader: r.Header.Clone()}
		sent := &bytes.Buffer{}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, sent), r.Body}
		watched := &watched{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(watched, r)
		x.RequestBody, x.Status, x.Header, x.Body = sent.Bytes(), watched.status, watched.Header(), watched.body.Bytes()
		if err := c.Check(x); err != nil {
			tell(err)
		}
	})
}

// watched keeps what is written.
type watched struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
