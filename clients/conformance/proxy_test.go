//go:build clients

package conformance

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault is the disturbance of one request.
type fault struct {
	drop  bool          // the server executes the request, and the connection is closed without an answer
	cut   bool          // the connection is closed, and the server never receives the request
	late  time.Duration // the answer is delayed
	page  *page         // the answer is replaced; with cut, the server never receives the request
	again time.Duration // the request is repeated after this time, and that answer is discarded
	often int           // with repeatAfter: the number of further repeats
	drip  bool          // the answer is written byte by byte, without its last byte
	swap  bool          // the answer is exchanged with the answer to another request, if one arrives soon
}

// cannedAnswer is an answer that does not come from flightd.
type page struct {
	status int
	kind   string
	body   string
}

func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", p.kind)
	w.WriteHeader(p.status)
	_, _ = io.WriteString(w, p.body)
}

// proxy is a fault-injecting HTTP proxy between clients and a server.
type proxy struct {
	house *house
	url   string

	repeats sync.WaitGroup // repeated requests; the test's cleanup waits for them
	swaps   chan offer     // answers to exchange; several proxies may share the channel

	mu    sync.Mutex // guards seen and fault
	seen  []request
	fault func(path string) fault
}

// request is a request that the proxy has received.
type request struct {
	path string
	body string
}

func newProxy(t testing.TB, h *house) *proxy {
	t.Helper()
	p := &proxy{house: h, swaps: make(chan offer)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: p, ReadHeaderTimeout: patience}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }() // the cleanup closes the server and waits
	t.Cleanup(func() { _ = server.Close(); <-served; p.repeats.Wait() })
	p.url = "http://" + l.Addr().String()
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f := p.note(request{path: r.URL.Path, body: string(body)})
	target := p.house.address()
	if f.again > 0 {
		p.repeat(r, body, f)
	}
	if f.cut && f.page != nil {
		f.page.ServeHTTP(w, r)
		return
	}
	if f.cut || target == "" {
		panic(http.ErrAbortHandler)
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	answer, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || f.drop {
		panic(http.ErrAbortHandler)
	}
	if f.page != nil {
		f.page.ServeHTTP(w, r)
		return
	}
	if f.late > 0 {
		select {
		case <-time.After(f.late):
		case <-r.Context().Done():
		}
	}
	given := &response{answer.StatusCode, answer.Header, data}
	if f.swap {
		given = p.swap(given)
	}
	for name, values := range given.header {
		w.Header()[name] = values
	}
	w.WriteHeader(given.status)
	data = given.body
	if f.drip {
		drip(w, r, data)
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
func (p *proxy) swap(own *response) *response {
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
		<-time.After(f.again)
		for range f.often + 1 {
			out, err := http.NewRequest(method, p.house.address()+uri, bytes.NewReader(body))
			if err != nil {
				return // the server is not running
			}
			out.Header = header
			if answer, err := http.DefaultTransport.RoundTrip(out); err == nil {
				_ = answer.Body.Close()
			}
		}
	})
}

// dripBody writes all but the last byte, five per second.
func drip(w http.ResponseWriter, r *http.Request, data []byte) {
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

func (p *proxy) note(r request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, r)
	if p.fault == nil {
		return fault{}
	}
	return p.fault(r.path)
}

// failOnce injects f into the first request to a path with the suffix.
func (p *proxy) once(suffix string, f fault) {
	met := false
	p.always(func(path string) fault {
		if met || !strings.HasSuffix(path, suffix) {
			return fault{}
		}
		met = true
		return f
	})
}

// setFaults sets the function that returns the fault of each request.
func (p *proxy) always(f func(path string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// requests returns the requests to paths with the suffix.
func (p *proxy) requests(suffix string) (all []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.seen {
		if strings.HasSuffix(r.path, suffix) {
			all = append(all, r)
		}
	}
	return all
}
