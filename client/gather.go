package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/internal/strictjson"
)

const (
	batchPath = "/v1/flights:batch"
	// maxBatches bounds the batches on their way to one server.
	maxBatches = 2
	// maxGathered bounds the lines of a batch, and maxGatheredBody its bytes: a node keeps a body of that size in memory, and passes
	// it on to another leader if the first one did nothing with it.
	maxGathered, maxGatheredBody = 256, 64 << 10
	// maxGatheredLine is the longest line.
	maxGatheredLine = 16 << 10
)

// gatherer sends concurrent opens, reports and abandons to one server together. There is no timer: a request that comes alone is sent
// at once by its own route, and what comes while others are on their way goes with the next batch.
//
// A line of a batch waits for no other caller, so a batch is short. A request that is on its way alone may take long, and
// holds up nobody.
type gatherer struct {
	re     *requester
	server string

	mu      sync.Mutex // guards the fields below, and those of batches and lines
	alone   bool       // a request is on its way by its own route
	batches int        // on their way, without those that hang
	waiting []*line    // for the next batch
	off     bool       // no more batches: the server has no route for them, or Close has begun

	running gate.Gate // counts batches; closed by Close, and then every request is sent by its own route
}

// line is one request that shares a batch.
type line struct {
	text    []byte // with its line feed
	timeout time.Duration
	batch   *batch          // nil: it waits
	answer  chan lineAnswer // receives the one answer
}

// lineAnswer is what send returns for a line. alone: the batch was rejected, and the request has to be sent by its own route.
type lineAnswer struct {
	response
	err   error
	alone bool
}

// batch is a request with several lines, until its answer has ended.
type batch struct {
	request
	lines  []*line         // nil: answered or given up
	open   int             // other lines
	ctx    context.Context // ends when open is 0
	cancel context.CancelFunc
	hangs  bool // a line has had no answer in time: others do not wait for the batch any more
}

// send is requester.send, alone or in a batch. Errors are those of requester.send.
func (g *gatherer) send(ctx context.Context, r *request) (response, error) {
	if r.line == "" || len(r.body) > maxGatheredLine || bytes.IndexByte(r.body, '\n') >= 0 {
		return g.re.send(ctx, g.server, r)
	}
	g.mu.Lock()
	if g.off || !g.alone && g.batches == 0 && len(g.waiting) == 0 {
		g.alone = true
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.alone = false
		}()
		return g.re.send(ctx, g.server, r)
	}
	g.mu.Unlock()
	l := &line{text: g.re.appendLine(make([]byte, 0, len(r.body)+160), r), timeout: cmp.Or(r.timeout, defaultTryTimeout), answer: make(chan lineAnswer, 1)}
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	g.mu.Lock()
	g.waiting = append(g.waiting, l)
	g.startBatches()
	g.mu.Unlock()
	var a lineAnswer
	select {
	case a = <-l.answer:
	case <-timer.C:
		a = g.giveUp(l, true)
	case <-ctx.Done():
		a = g.giveUp(l, false)
	}
	if a.alone {
		return g.re.send(ctx, g.server, r)
	}
	return a.response, a.err
}

// giveUp returns the answer to a line that is not waited for any more, because its time is over (late) or because its caller has gone.
func (g *gatherer) giveUp(l *line, late bool) lineAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case a := <-l.answer: // just in time
		return a
	default:
	}
	failed := &sendError{err: errTryTimeout, notSent: l.batch == nil}
	if !late {
		failed.err = fmt.Errorf("%w: %s", errGivenUp, g.server)
	}
	b := l.batch
	if b == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *line) bool { return w == l })
		return lineAnswer{err: failed}
	}
	b.lines[slices.Index(b.lines, l)] = nil
	if b.open--; b.open == 0 {
		b.cancel()
	}
	if late && !b.hangs {
		b.hangs = true
		g.batches--
		g.startBatches()
	}
	return lineAnswer{err: failed}
}

// startBatches sends what waits, unless enough batches are on their way. The caller holds mu.
func (g *gatherer) startBatches() {
	for len(g.waiting) > 0 && g.batches < maxBatches && !g.off {
		b := &batch{request: request{method: http.MethodPost, path: batchPath, contentType: wire.TypeNDJSON}}
		for _, l := range g.waiting {
			if len(b.lines) == maxGathered || len(b.body)+len(l.text) > maxGatheredBody {
				break
			}
			l.batch, b.lines = b, append(b.lines, l)
			b.body, b.timeout = append(b.body, l.text...), max(b.timeout, l.timeout)
		}
		g.waiting = slices.Delete(g.waiting, 0, len(b.lines))
		b.open, g.batches = len(b.lines), g.batches+1
		b.ctx, b.cancel = context.WithCancel(context.Background())
		started := g.running.Go(func() {
			defer b.cancel()
			g.exchange(b)
			g.mu.Lock()
			defer g.mu.Unlock()
			if !b.hangs {
				g.batches--
				g.startBatches()
			}
		})
		if !started {
			g.off, g.batches, g.waiting = true, g.batches-1, append(b.lines, g.waiting...)
		}
	}
	for ; g.off && len(g.waiting) > 0; g.waiting = g.waiting[1:] {
		g.waiting[0].answer <- lineAnswer{alone: true}
	}
}

// answerRest gives an answer to all lines of a batch that have none. The caller holds mu.
func (g *gatherer) answerRest(b *batch, a lineAnswer) {
	for i := range b.lines {
		g.answerLine(b, i, a)
	}
}

// answerLine gives an answer to a line of a batch, unless it has one. The caller holds mu.
func (g *gatherer) answerLine(b *batch, i int, a lineAnswer) {
	if l := b.lines[i]; l != nil {
		l.answer <- a
		b.lines[i] = nil
		b.open--
	}
}

// exchange sends a batch and answers its lines.
func (g *gatherer) exchange(b *batch) {
	answered := false
	b.read = func(answer *http.Response, resp *response) error {
		g.re.ledgerClock.set(resp.ledgerTime, false) // the lines come later, when it has passed
		lines := bufio.NewScanner(io.LimitReader(answer.Body, maxAnswer))
		lines.Buffer(make([]byte, 0, 16<<10), maxAnswer)
		for lines.Scan() {
			a, err := wire.DecodeBatchAnswer(lines.Bytes())
			if err != nil || a.Line < 1 || a.Line > len(b.lines) || a.Status < http.StatusOK {
				continue
			}
			header := http.Header{wire.HeaderIndex: {a.Index}, wire.HeaderNode: resp.header[wire.HeaderNode], wire.HeaderLeader: resp.header[wire.HeaderLeader]}
			answered = true
			g.mu.Lock()
			g.answerLine(b, a.Line-1, lineAnswer{response: response{status: a.Status, header: header, body: a.Body, own: true, sentAt: resp.sentAt, inBatch: true}})
			g.mu.Unlock()
		}
		return lines.Err()
	}
	resp, err := g.re.send(b.ctx, g.server, &b.request)
	rest := lineAnswer{response: resp, err: err}
	var failed *sendError
	switch {
	case errors.As(err, &failed) && answered: // so the connection was not stale
		rest.err = &sendError{err: failed.err}
	case err != nil:
	case resp.status == http.StatusOK:
		rest.err = &sendError{err: errors.New("the answer to the batch has no line for the request")}
	case resp.status >= http.StatusBadRequest && resp.status < http.StatusInternalServerError && resp.status != http.StatusRequestTimeout:
		rest.alone = true // no line was carried out
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.off = g.off || rest.alone && (resp.status == http.StatusNotFound || resp.status == http.StatusMethodNotAllowed) // an older server
	g.answerRest(b, rest)
}

// appendLine appends a request as a line of a batch.
func (re *requester) appendLine(b []byte, r *request) []byte {
	b = append(append(append(append(b, `{"`...), r.line...), `":`...), r.body...)
	if r.line == "report" {
		b = append(append(append(b, `,"flight_id":"`...), r.key.FlightID().String()...), '"')
	}
	if namespace := r.key.Namespace(); namespace != re.opts.namespace { // else the header of the batch names it
		b = append(append(append(b, `,"namespace":"`...), namespace...), '"')
	}
	if r.trace != "" {
		b = strictjson.Append(append(b, `,"traceparent":`...), r.trace)
	}
	return append(b, "}\n"...)
}
