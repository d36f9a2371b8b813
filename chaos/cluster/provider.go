package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
)

// provider is the system in which the effects happen. Its books are the history. It acts when a request arrives, and answers
// when the effect has lasted as long as the request says; it answers a repeat at once.
//
// It honours the idempotency keys of recovery resend, and can be asked whether an effect has happened. Under the other
// recoveries it acts on each request.
type provider struct {
	history *History
	server  http.Server
	serving sync.WaitGroup

	mu     sync.Mutex        // guards the fields below
	acted  int               // number of effects
	byIdem map[string]string // answers by idempotency key
	byKey  map[string]string // answers of the first effects, by flightd's key
}

// effectRequest is the body of a request to act.
type effectRequest struct {
	Key     string `json:"key"`
	LastsMS int64  `json:"lasts_ms"`
}

// newProvider starts a provider. close must be called.
func newProvider(l net.Listener, h *History) *provider {
	p := &provider{history: h, byIdem: make(map[string]string), byKey: make(map[string]string)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects", p.act)
	mux.HandleFunc("GET /effects", p.lookUp)
	p.server.Handler = mux
	p.serving.Go(func() { _ = p.server.Serve(l) }) // the error says that the server was closed
	return p
}

func (p *provider) close() {
	_ = p.server.Close()
	p.serving.Wait()
}

func (p *provider) act(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	var asked effectRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := Effect{Key: asked.Key, IdempotencyKey: r.Header.Get(effect.HeaderIdempotencyKey), FencingToken: r.Header.Get(effect.HeaderFencingToken), At: arrived,
		Lasts: time.Duration(asked.LastsMS) * time.Millisecond, Agent: r.UserAgent()}
	p.mu.Lock()
	if recoveryOf(e.Key) == recoveryResend {
		e.Body, e.Repeat = p.byIdem[e.IdempotencyKey]
	}
	if !e.Repeat {
		p.acted++
		e.Body = fmt.Sprintf(`{"effect": %d,  "of": %q}`, p.acted, e.Key) // two spaces: a body is stored byte for byte
		p.byIdem[e.IdempotencyKey] = e.Body
		if _, known := p.byKey[e.Key]; !known {
			p.byKey[e.Key] = e.Body
		}
	}
	p.mu.Unlock()
	p.history.addEffect(e)
	if !e.Repeat {
		time.Sleep(e.Lasts)
	}
	answer(w, e.Body)
}

func (p *provider) lookUp(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	body, known := p.byKey[r.URL.Query().Get("key")]
	p.mu.Unlock()
	if !known {
		http.NotFound(w, r)
		return
	}
	answer(w, body)
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body)) // the caller may have gone
}
