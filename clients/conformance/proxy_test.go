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

// fault is what happens to one request on its way.
type fault struct {
	drop  bool          // it is carried out, and the connection is cut instead of the answer
	cut   bool          // the connection is cut before the server sees it
	late  time.Duration // the answer comes so much later
	page  *page         // something between answers this; with cut, before the server sees the request
	again time.Duration // it is carried out again, so much later, and nobody reads that answer
	often int           // with again: so many times more than once
	drip  bool          // the answer comes byte by byte, and does not come to its end
	swap  bool          // the answer is exchanged with that to another request, where one comes soon
}

// page is what something answers that is not flightd.
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

// proxy stands between clients and a house.
type proxy struct {
	house *house
	url   string

	repeats sync.WaitGroup
	swaps   chan offer // answers that are to be exchanged; several proxies may share it

	mu    sync.Mutex
	seen  []request
	fault func(path string) fault
}

// request is one that was seen.
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
	go func() { defer close(served); _ = server.Serve(l) }() // it ends by Close
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
	_, _ = w.Write(data) // a client that has gone is what some of this is about
}

// response is an answer that was read whole.
type response struct {
	status int
	header http.Header
	body   []byte
}

// offer is an answer, and where the one that is given in exchange for it goes.
type offer struct {
	answer *response
	back   chan<- *response
}

// swapTime is how long an answer waits for another one to be exchanged with.
const swapTime = 200 * time.Millisecond

// swap gives the answer to another request in exchange for this one; where none comes, this one.
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

// repeat carries a request out again, later.
func (p *proxy) repeat(r *http.Request, body []byte, f fault) {
	method, uri, header := r.Method, r.URL.RequestURI(), r.Header.Clone()
	p.repeats.Go(func() {
		<-time.After(f.again)
		for range f.often + 1 {
			out, err := http.NewRequest(method, p.house.address()+uri, bytes.NewReader(body))
			if err != nil {
				return // there is no server just now
			}
			out.Header = header
			if answer, err := http.DefaultTransport.RoundTrip(out); err == nil {
				_ = answer.Body.Close()
			}
		}
	})
}

// drip writes all but the last byte, a few in a second.
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

// once lets the first request to a path that ends so meet a fault.
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

func (p *proxy) always(f func(path string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// requests are those seen to paths that end so.
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
