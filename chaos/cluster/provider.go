package cluster

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
)

// provider is the system in which the effects happen. Its books are the history. It acts when a request arrives, and answers
// when the effect has lasted as long as the request says; it answers a repeat at once when that is over.
//
// It honours the idempotency keys of recovery resend for providerWindow, and can be asked whether an effect has happened: until lookUpLag after
// its beginning it says no, and then it says yes, when the effect is over. Under the other recoveries it acts on each request. It does not serve the first request for some steps of
// sagas, and some answers are lost. A run can make it misbehave in more ways: see setTrouble.
type provider struct {
	history *History
	server  http.Server
	serving sync.WaitGroup

	calling *http.Client // to flightd; nil: nobody is called back

	mu      sync.Mutex         // guards the fields below
	acted   int                // number of effects
	asked   map[string]int     // number of requests by flightd's key
	byIdem  map[string]*Effect // effects by idempotency key
	byKey   map[string]*Effect // first effects, by flightd's key
	trouble trouble
	bites   int // requests that met trouble since it was set
	values  map[string]register
	writes  []write // of registers
}

// trouble is a way in which the provider fails every second request.
type trouble string

const (
	troubleLost    trouble = "loses answers"            // it acts, and closes the connection
	troubleErrors  trouble = "answers 500 for ever"     // it acts, and answers 500, also to a repeat
	troubleRefuses trouble = "refuses"                  // 503, and it does not act
	troubleLate    trouble = "acts after a caller left" // it closes the connection, and acts a moment later
	troubleSlow    trouble = "answers seconds too late" // it acts at once
	lookUpLag              = 400 * time.Millisecond     // together with actsLate less than settleDelay
	actsLate               = 300 * time.Millisecond
)

// setTrouble makes the provider fail from now on, or not, and returns how many requests have met the trouble before.
func (p *provider) setTrouble(t trouble) (bites int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bites, p.bites, p.trouble = p.bites, 0, t
	return bites
}

// effectRequest is the body of a request to act.
type effectRequest struct {
	Key     string `json:"key"`
	LastsMS int64  `json:"lasts_ms"`
	// CallBack is where the provider reports the end of the effect; "": it answers then.
	CallBack string `json:"call_back,omitempty"`
	Hangs    bool   `json:"hangs,omitempty"` // a worker in Go goes on when its attempt's time is over
}

// newProvider starts a provider. close must be called.
func newProvider(l net.Listener, h *History) *provider {
	p := &provider{history: h, asked: make(map[string]int), byIdem: make(map[string]*Effect), byKey: make(map[string]*Effect), values: make(map[string]register)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects", p.act)
	mux.HandleFunc("GET /effects", p.lookUp)
	mux.HandleFunc("GET /registers/{name...}", p.readRegister)
	mux.HandleFunc("PUT /registers/{name...}", p.writeRegister)
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
	p.asked[e.Key]++
	met := trouble("")
	if p.trouble != "" && p.asked[e.Key]%2 == 1 {
		met = p.trouble
		p.bites++
	}
	fault := faultOf(e.Key)
	if p.asked[e.Key] > 1 {
		fault = 0
	}
	p.mu.Unlock()
	switch {
	case fault == http.StatusUnprocessableEntity || fault == http.StatusTooManyRequests:
		http.Error(w, "not this time", fault)
		return
	case met == troubleRefuses:
		http.Error(w, "come again", http.StatusServiceUnavailable)
		return
	case met == troubleLate:
		hijacked, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = hijacked.Close()
		}
		time.Sleep(actsLate)
		e.At = time.Now()
	}
	e.Trouble = string(met)
	p.mu.Lock()
	status, over := p.recordLocked(&e)
	p.mu.Unlock()
	if asked.CallBack != "" {
		p.serving.Go(func() {
			time.Sleep(e.Lasts)
			callBack(p.calling, asked.CallBack, e.Body)
		})
	} else {
		time.Sleep(time.Until(over)) // a repeat waits for the effect, too
	}
	switch {
	case met == troubleLate:
	case met == troubleLost || fault == answerLost:
		panic(http.ErrAbortHandler) // closes the connection
	case status != http.StatusOK:
		http.Error(w, "an internal error", status)
	default:
		if met == troubleSlow {
			time.Sleep(3 * time.Second)
		}
		answer(w, e.Body)
	}
}

// recordLocked lets an effect happen, unless it is a repeat, and writes it into the books. It returns the status of the answer, and when the effect is over.
func (p *provider) recordLocked(e *Effect) (status int, over time.Time) {
	status, over = http.StatusOK, e.At.Add(e.Lasts)
	if first := p.byIdem[e.IdempotencyKey]; recoveryOf(e.Key) == recoveryResend && first != nil && e.At.Sub(first.At) < providerWindow+providerGrace {
		over = first.At.Add(first.Lasts)
		if e.Body, e.Repeat = first.Body, true; first.Trouble == string(troubleErrors) {
			status = http.StatusInternalServerError
		}
	} else {
		p.acted++
		e.Body = fmt.Sprintf(`{"effect": %d,  "of": %q}`, p.acted, e.Key) // two spaces: a body is stored byte for byte
		if isStep(e.Key) {
			e.Body = compact(e.Body) // a look-up or a person in another language must name the same effect
		}
		kept := *e
		p.byIdem[e.IdempotencyKey] = &kept
		if p.byKey[e.Key] == nil {
			p.byKey[e.Key] = &kept
		}
		if e.Trouble == string(troubleErrors) {
			status = http.StatusInternalServerError
		}
	}
	p.history.addEffect(*e)
	return status, over
}

// providerGrace is how much longer than declared the provider remembers a key: a request may be on its way for that long.
const providerGrace = 10 * time.Second

func isJob(key string) bool { return strings.Contains(key, "/job-") }

func isStep(key string) bool { return strings.Contains(key, "#") }

// answerLost is the fault of an effect that happens, and nobody is told.
const answerLost = 1

// faultOf returns the fault of the first request for a key: 0, the status with which it is rejected, or answerLost. Only steps of sagas and their
// undos have faults: one in twenty is refused, two are not served yet, and the answers to two are lost.
func faultOf(key string) int {
	if !isStep(key) {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	switch h.Sum32() % 20 {
	case 0:
		return http.StatusUnprocessableEntity
	case 1, 2:
		return http.StatusTooManyRequests
	case 3, 4:
		return answerLost
	}
	return 0
}

func (p *provider) lookUp(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	first := p.byKey[r.URL.Query().Get("key")]
	p.mu.Unlock()
	if first == nil || time.Since(first.At) < lookUpLag {
		http.NotFound(w, r)
		return
	}
	time.Sleep(time.Until(first.At.Add(first.Lasts))) // its answer may let the next job of the lane begin
	answer(w, first.Body)
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body)) // the caller may have gone
}
