//go:build clients

package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// provider executes the effects, records them, and can block its answers. Each path has its own gate.
//
//	POST /effect    executes the effect; the answer waits for the gate
//	GET  /page      answers 404: the target of redirects
//	GET  /before    does nothing; the answer waits for the gate
//	GET  /after     does nothing
//	GET  /look      returns the effect, if it happened; the answer waits for the gate
type provider struct {
	url string

	mu             sync.Mutex // guards the fields below
	charges        []charge
	requests       []providerRequest
	honour         bool  // one Idempotency-Key, one charge
	status         []int // statuses of the next answers; 2xx, 303 and 500 charge, all others do not
	dropConnection bool  // charge at the next request, and close the connection without an answer
	lookUpsFail    int   // so many look-ups are answered by what nobody can read
	arrivals       map[string]int
	before         map[string]int           // the arrivals when a path was blocked last
	gates          map[string]chan struct{} // of blocked paths; closed by unblock
}

// charge is an effect. Its answer has values that a JSON decoder and encoder could change.
type charge struct {
	ID    string          `json:"id"`
	Note  string          `json:"note"`
	Ratio float64         `json:"ratio"`
	Input json.RawMessage `json:"input"`
	key   string
}

// providerRequest is one request for the effect.
type providerRequest struct{ key, token, input string }

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{arrivals: make(map[string]int), before: make(map[string]int), gates: make(map[string]chan struct{})}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		for _, path := range []string{"/effect", "/before", "/look"} {
			p.unblock(path)
		}
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch r.URL.Path {
	case "/before", "/after":
		p.waitGate(r)
		_, _ = w.Write([]byte("null"))
	case "/look":
		p.waitGate(r)
		p.lookup(w)
	case "/page":
		http.NotFound(w, r)
	case "/effect":
		status, made, hangUp := p.execute(providerRequest{r.Header.Get("Idempotency-Key"), r.Header.Get("Flightd-Fencing-Token"), string(body)})
		p.waitGate(r)
		if hangUp {
			panic(http.ErrAbortHandler)
		}
		if status == http.StatusSeeOther {
			w.Header().Set("Location", "/page")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(made) // fails if the caller was killed
	}
}

// execute performs the effect. A charge that it records has happened, whatever is answered.
func (p *provider) execute(c providerRequest) (status int, made any, hangUp bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, hangUp, p.dropConnection = http.StatusCreated, p.dropConnection, false
	if len(p.status) > 0 {
		status, p.status = p.status[0], p.status[1:]
	}
	if status >= 300 && status != http.StatusInternalServerError && status != http.StatusSeeOther {
		p.requests = append(p.requests, c)
		return status, "no", hangUp
	}
	p.requests = append(p.requests, c)
	for _, old := range p.charges {
		if p.honour && old.key == c.key {
			return status, old, hangUp
		}
	}
	charged := charge{ID: fmt.Sprintf("ch_%d", len(p.charges)+1), Note: "é \u2028 </b> \"", Ratio: 0.1, Input: json.RawMessage(cmp.Or(c.input, "null")), key: c.key}
	p.charges = append(p.charges, charged)
	return status, charged, hangUp
}

func (p *provider) lookup(w http.ResponseWriter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lookUpsFail > 0 {
		p.lookUpsFail--
		_, _ = w.Write([]byte("<html>"))
		return
	}
	found := struct {
		Happened bool    `json:"happened"`
		Value    *charge `json:"value,omitempty"`
	}{Happened: len(p.charges) > 0}
	if found.Happened {
		found.Value = &p.charges[0]
	}
	_ = json.NewEncoder(w).Encode(found)
}

// block blocks the answers of a path. unblock releases them and all later ones.
func (p *provider) block(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gates[path], p.before[path] = make(chan struct{}), p.arrivals[path]
}

func (p *provider) unblock(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gate := p.gates[path]; gate != nil {
		close(gate)
		delete(p.gates, path)
	}
}

func (p *provider) waitGate(r *http.Request) {
	p.mu.Lock()
	gate := p.gates[r.URL.Path]
	p.arrivals[r.URL.Path]++
	p.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

// waitArrived waits until a request has reached the path, since it was blocked last.
func (p *provider) waitArrived(t testing.TB, path string) {
	t.Helper()
	eventually(t, "a request to "+path, waitTimeout, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.arrivals[path] > p.before[path]
	})
}

// requestCount returns the number of requests to a path.
func (p *provider) requestCount(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals[path]
}

// recorded returns all charges and all requests.
func (p *provider) recorded() (charges []charge, asked []providerRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(charges, p.charges...), append(asked, p.requests...)
}

// configure changes the provider's behaviour under its lock.
func (p *provider) configure(change func(*provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}
