package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

const (
	// maxBatchWorkers bounds the lines of one batch that are served at once.
	maxBatchWorkers = 256
	// maxLineWorkers bounds those of all batches of a node. Others wait.
	maxLineWorkers = 4096
	// batchAnswerSize is the memory, in bytes, that is counted for the answer to a line before any line is served. It is enough for
	// everything but receipts.
	batchAnswerSize = 1 << 10
)

// batchRoutes serve many requests of callers in one.
type batchRoutes struct {
	*responder
	lines   http.Handler  // serves each line, as a request of its own
	workers chan struct{} // has a value for each worker
}

func (br *batchRoutes) routes() []declaration {
	return []declaration{route{pattern: "POST /v1/flights:batch", serve: br.batch, access: with(auth.Submit | auth.Work)}}
}

// batch serves POST /v1/flights:batch. Each line is a request to the route that its answer comes from, with the headers of the
// batch: tokens, scopes, limits and the end of a term apply to it. The answer to a line is written when it is there.
//
// A batch that is rejected as a whole has changed nothing. If the process dies, or the connection breaks, each line without an
// answer may have been carried out, as a request without an answer.
func (br *batchRoutes) batch(w http.ResponseWriter, r *http.Request) error {
	lines, bad := br.readLines(w, r)
	if bad != nil {
		return bad
	}
	release, ok := holdAnswer(w, r, len(lines)*batchAnswerSize)
	if !ok {
		return problemError{problem: answerProblem(r)}
	}
	defer release()
	ctx := context.WithValue(context.WithValue(r.Context(), batchKey{}, true), receivedKey{}, nil) // the batch has been received
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	r.Header["Content-Type"] = typeJSON
	answers := make(chan *lineWriter, len(lines)) // so that no line waits for a slow reader
	var next, long atomic.Int64
	var workers sync.WaitGroup
	defer workers.Wait()
	for range min(len(lines), maxBatchWorkers) {
		workers.Go(func() {
			br.workers <- struct{}{}
			defer func() { <-br.workers }()
			for i := int(next.Add(1)); i <= len(lines); i = int(next.Add(1)) {
				answers <- br.serveLine(w, r, i, lines[i-1], &long)
			}
		})
	}
	w.Header()["Content-Type"] = []string{wire.TypeNDJSON}
	w.Header()["X-Accel-Buffering"] = []string{"no"} // otherwise a proxy may keep lines back
	w.WriteHeader(http.StatusOK)
	ctrl, out := http.NewResponseController(w), []byte(nil)
	var held []*lineWriter // the lines in out whose memory is counted
	write := func() {
		writeLines(w, ctrl, out)
		for _, lw := range held {
			lw.release()
		}
		out, held = out[:0], held[:0]
	}
	for range lines {
		if len(out) > maxPooledBuffer || len(answers) == 0 && len(out) > 0 {
			write()
			_ = ctrl.Flush() // it fails with the write, and for writers of tests
		}
		lw := <-answers
		if out = append(out, *lw.buf...); cap(*lw.buf) <= maxPooledBuffer {
			buffers.Put(lw.buf)
		}
		lw.buf = nil
		if lw.release != nil {
			held = append(held, lw)
		}
	}
	write()
	return nil
}

// writeLines writes lines of the answer. A caller that misses one repeats its request.
func writeLines(w http.ResponseWriter, ctrl *http.ResponseController, lines []byte) {
	_ = ctrl.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	_, _ = w.Write(lines)
}

// readLines reads the body of a batch and returns its lines.
func (br *batchRoutes) readLines(w http.ResponseWriter, r *http.Request) (lines [][]byte, bad *wire.Invalid) {
	body, bad := br.receiveLines(w, r, wire.MaxBatchBody)
	if bad != nil {
		return nil, bad
	}
	for line := range bytes.Lines(body) {
		lines = append(lines, line)
	}
	switch {
	case len(lines) == 0:
		return nil, wire.BadField("", "the body has no lines; send one JSON object per line")
	case len(lines) > wire.MaxBatchLines:
		bad := wire.BadField("", "more than %d lines; send the rest in another request", wire.MaxBatchLines)
		bad.Code = wire.PayloadTooLarge
		return nil, bad
	}
	return lines, nil
}

type batchKey struct{}

// isLine reports whether a request is a line of a batch.
func isLine(r *http.Request) bool { return r.Context().Value(batchKey{}) != nil }

// serveLine has one line of the batch r answered, and returns its answer, for which it takes one of buffers. The memory of an answer
// longer than batchAnswerSize is counted until the caller calls release. long is the length of all such answers, and the first
// maxPooledBuffer bytes of them do not count. If there is no memory, the line is answered with answerProblem, as by its own route.
func (br *batchRoutes) serveLine(w http.ResponseWriter, r *http.Request, number int, text []byte, long *atomic.Int64) *lineWriter {
	lw := &lineWriter{number: number, header: make(http.Header, 8), buf: buffers.Get().(*[]byte)}
	own := r.WithContext(r.Context())
	func() {
		defer func() { // as net/http does for a request
			if p := recover(); p != nil {
				br.log.Error("httpapi: panic in a line of a batch", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				lw.status = 0
				br.writeError(lw, r, fmt.Errorf("panic: %v", p))
			}
		}()
		line, bad := wire.DecodeBatchLine(text)
		var path string
		var body []byte
		if bad == nil {
			path, body, bad = line.Request()
		}
		if bad != nil {
			br.writeError(lw, r, bad)
			return
		}
		own.URL, own.RequestURI, own.ContentLength, own.Body = &url.URL{Path: path}, path, int64(len(body)), io.NopCloser(bytes.NewReader(body))
		if line.Namespace != "" || line.Traceparent != "" {
			own.Header = maps.Clone(r.Header)
			for name, value := range map[string]string{wire.HeaderNamespace: line.Namespace, effect.HeaderTraceparent: line.Traceparent} {
				if value != "" {
					own.Header[name] = []string{value}
				}
			}
		}
		br.lines.ServeHTTP(lw, own)
	}()
	lw.end()
	if n := len(*lw.buf); n > batchAnswerSize && long.Add(int64(n)) > maxPooledBuffer {
		release, ok := countAnswer(w, r, n)
		if lw.release = release; !ok {
			*lw.buf, lw.release, lw.status = nil, nil, 0
			writeProblem(lw, own, answerProblem(own))
			lw.end()
		}
	}
	return lw
}

// lineWriter is the http.ResponseWriter of one line, which it writes to buf.
type lineWriter struct {
	number  int
	header  http.Header
	status  int // 0: none yet
	buf     *[]byte
	body    int    // where the body begins in buf
	release func() // nil if the memory of buf is not counted
}

func (w *lineWriter) Header() http.Header { return w.header }

const bodyField, base64Field = `,"body":`, `,"body_base64":"`

func (w *lineWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	b := strconv.AppendInt(append((*w.buf)[:0], `{"line":`...), int64(w.number), 10)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(status), 10)
	if index := w.header[wire.HeaderIndex]; len(index) == 1 {
		b = append(append(append(b, `,"index":"`...), index[0]...), '"')
	}
	*w.buf = append(b, bodyField...)
	w.body = len(*w.buf)
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	*w.buf = append(*w.buf, p...)
	return len(p), nil
}

// end completes the line. A body with a line break, which a caller's JSON may have, is written as base64: each byte counts.
func (w *lineWriter) end() {
	b := *w.buf
	if body := b[w.body:]; bytes.IndexByte(body, '\n') >= 0 {
		body = bytes.Clone(body)
		b = append(base64.StdEncoding.AppendEncode(append(b[:w.body-len(bodyField)], base64Field...), body), '"')
	}
	*w.buf = append(b, "}\n"...)
}
