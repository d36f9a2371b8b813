//go:build clients

package conformance

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// fault is the disturbance of one request.
type fault struct {
	drop         bool                     // the server executes the request, and the connection is closed without an answer
	cut          bool                     // the connection is closed, and the server never receives the request
	delay        time.Duration            // the answer is delayed
	canned       *cannedAnswer            // the answer is replaced; with cut, the server never receives the request
	own          bool                     // the canned answer is recognized as the answer to its request
	repeatAfter  time.Duration            // the request is repeated after this time, and that answer is discarded
	extraRepeats int                      // with repeatAfter: the number of further repeats
	drip         bool                     // the answer is written byte by byte, without its last byte
	noWait       bool                     // the server is asked for an answer at once
	exchange     bool                     // the answer is exchanged with the answer to another request, if one arrives soon
	edit         func(body string) string // changes the answer
}

// cannedAnswer is an answer that does not come from flightd, or with own from another one.
type cannedAnswer struct {
	status int
	kind   string
	body   string
}

func (a *cannedAnswer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// proxy is a fault-injecting HTTP proxy between clients and a server.
type proxy struct {
	server *server
	url    string
	refuse func() // ends the proxy: from then on its address refuses connections

	repeats sync.WaitGroup                   // repeated requests; the test's cleanup waits for them
	note    func(format string, args ...any) // of a soak
	count   atomic.Int64                     // of noted requests
	swaps   chan offer                       // answers to exchange; several proxies may share the channel

	mu           sync.Mutex // guards the fields below
	seenRequests []request
	backwards    []string // answers from a ledger that was older than the caller was told
	fault        func(path string) fault
	rewrite      func(answer http.Header) // nil: headers of answers, and the index in requests, are passed on as they are
}

// waitField is how long a request may wait at the server.
var waitField = regexp.MustCompile(`"wait_ms": ?[0-9]+`)

// request is a request that the proxy has received.
type request struct {
	at     time.Time
	path   string
	body   string
	header http.Header
}

func newProxy(t testing.TB, h *server) *proxy {
	t.Helper()
	p := &proxy{server: h, swaps: make(chan offer), note: func(string, ...any) {}}
	if e, ok := t.(*evidence); ok {
		p.note = e.note
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: p, ReadHeaderTimeout: waitTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	p.refuse = func() { _ = server.Close() }
	served := make(chan struct{})
	scheme := "http://"
	if h.access != nil {
		pair, err := tls.LoadX509KeyPair(h.access.certFile, h.access.keyFile)
		require.NoError(t, err)
		l, scheme = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}), "https://"
	}
	go func() { defer close(served); _ = server.Serve(l) }() // the cleanup closes the server and waits
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		p.repeats.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.backwards, "time went back")
	})
	p.url = scheme + l.Addr().String()
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f := p.record(request{at: time.Now(), path: r.URL.Path, body: string(body), header: r.Header})
	target := p.server.address()
	name := p.url + "#" + strconv.FormatInt(p.count.Add(1), 10)
	p.note("%s to %q with %+v: %s %s %s", name, target, f, r.Method, r.URL.RequestURI(), body)
	if f.canned != nil {
		p.note("%s gets %+v", name, *f.canned)
	}
	if f.repeatAfter > 0 {
		p.repeat(r, body, f)
	}
	if f.cut && f.canned != nil {
		p.rewriteHeader(w.Header())
		if f.own {
			w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		}
		f.canned.ServeHTTP(w, r)
		return
	}
	if f.cut || target == "" {
		panic(http.ErrAbortHandler)
	}
	if f.noWait {
		body = waitField.ReplaceAll(body, []byte(`"wait_ms":0`))
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	if f.noWait {
		out.Header.Del("Prefer")
	}
	p.hideIndex(out.Header)
	answer, err := p.server.transport().RoundTrip(out)
	if err != nil {
		p.note("%s failed: %v", name, err)
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	p.note("%s answered: %s %s", name, answer.Status, data)
	p.checkIndex(out, answer, data)
	if err != nil || f.drop {
		panic(http.ErrAbortHandler)
	}
	if f.canned != nil {
		p.rewriteHeader(w.Header())
		if f.own {
			w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		}
		f.canned.ServeHTTP(w, r)
		return
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-r.Context().Done():
		}
	}
	given := &response{answer.StatusCode, answer.Header, data}
	if f.exchange {
		given = p.swapAnswer(given)
	}
	for name, values := range given.header {
		w.Header()[name] = values
	}
	p.rewriteHeader(w.Header())
	data = given.body
	if f.edit != nil {
		data = []byte(f.edit(string(data)))
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(given.status)
	if f.drip {
		dripBody(w, r, data)
		return
	}
	_, _ = w.Write(data) // fails if the client has closed the connection
}

// response is an answer with its body.
type response struct {
	status int
	header http.Header
	body   []byte
}

// offer is an answer, and the channel for the answer that is exchanged for it.
type offer struct {
	answer *response
	back   chan<- *response
}

// swapTime limits the wait for another answer to exchange with.
const swapTime = 200 * time.Millisecond

// swapAnswer exchanges own for the answer to another request. Without another request within swapTime it returns own.
func (p *proxy) swapAnswer(own *response) *response {
	over := time.NewTimer(swapTime)
	defer over.Stop()
	back := make(chan *response, 1)
	select {
	case other := <-p.swaps:
		other.back <- own
		return other.answer
	case p.swaps <- offer{own, back}:
		return <-back
	case <-over.C:
		return own
	}
}

// repeat sends a request again, later, in the background.
func (p *proxy) repeat(r *http.Request, body []byte, f fault) {
	method, uri, header := r.Method, r.URL.RequestURI(), r.Header.Clone()
	p.repeats.Go(func() {
		<-time.After(f.repeatAfter)
		for range f.extraRepeats + 1 {
			out, err := http.NewRequest(method, p.server.address()+uri, bytes.NewReader(body))
			if err != nil {
				return // the server is not running
			}
			out.Header = header
			if answer, err := p.server.transport().RoundTrip(out); err == nil {
				_ = answer.Body.Close()
			}
		}
	})
}

// dripBody writes all but the last byte, five per second.
func dripBody(w http.ResponseWriter, r *http.Request, data []byte) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for _, b := range data[:len(data)-1] {
		_, _ = w.Write([]byte{b})
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func (p *proxy) record(r request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seenRequests = append(p.seenRequests, r)
	if p.fault == nil {
		return fault{}
	}
	return p.fault(r.path)
}

// setRewrite sets the function that changes the headers of answers.
func (p *proxy) setRewrite(f func(answer http.Header)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = f
}

func (p *proxy) rewriteHeader(answer http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rewrite != nil {
		p.rewrite(answer)
	}
}

// hideIndex removes the index of the ledger from a request if it may come from an answer that this proxy has rewritten: the
// server does not know that index.
func (p *proxy) hideIndex(request http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rewrite != nil {
		request.Del(wire.HeaderIndex)
	}
}

// checkIndex checks that a request is not answered from a ledger that is older than its caller was told. A node that has no such
// ledger answers with a retryable error. Two kinds of answers say nothing about the ledger: that of a server that does not admit the
// caller, which may have another ledger; and that of a renewal which no leader took, and which grants no trust.
func (p *proxy) checkIndex(request *http.Request, answer *http.Response, data []byte) {
	known, err := wire.ParseIndex(request.Header.Get(wire.HeaderIndex))
	admitted := !slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest}, answer.StatusCode)
	if err != nil || !admitted || answer.StatusCode >= http.StatusInternalServerError || bytes.Contains(data, []byte(`"trust_ms":0`)) {
		return
	}
	if own, err := wire.ParseIndex(answer.Header.Get(wire.HeaderIndex)); err != nil || known.After(own) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.backwards = append(p.backwards, request.Method+" "+request.URL.Path+" told "+known.String()+" answered "+answer.Status+" "+answer.Header.Get(wire.HeaderIndex))
	}
}

// failOnce injects f into the first request to a path with the suffix.
func (p *proxy) failOnce(suffix string, f fault) {
	met := false
	p.setFaults(func(path string) fault {
		if met || !strings.HasSuffix(path, suffix) {
			return fault{}
		}
		met = true
		return f
	})
}

// setFaults sets the function that returns the fault of each request.
func (p *proxy) setFaults(f func(path string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// requests returns the requests to paths with the suffix.
func (p *proxy) requests(suffix string) (all []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.seenRequests {
		if strings.HasSuffix(r.path, suffix) {
			all = append(all, r)
		}
	}
	return all
}
