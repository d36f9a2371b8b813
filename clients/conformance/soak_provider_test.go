//go:build clients

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// soakProvider is a provider with an account per id and random failures. For an id that begins with "hold" it charges
// at every request, for all others once per idempotency key.
type soakProvider struct {
	url           string
	rnd           *lockedRand
	tellsOutcomes bool // no outcome is unknown

	mu       sync.Mutex // guards good, accounts and the accounts themselves
	healthy  bool
	accounts map[string]*account
}

// account records the charges and requests of one id.
type account struct {
	charges  []charge
	requests []effectRequest
}

// effectRequest is one request for an effect. knownNotDone is set if the answer said that nothing happened.
type effectRequest struct {
	key, token   string
	at           time.Time
	knownNotDone bool
	outcome      string
}

func (a account) String() string {
	var b strings.Builder
	for _, v := range a.requests {
		fmt.Fprintf(&b, "[%s token …%s key …%s at %s] ", v.outcome, v.token[20:40], v.key[:4], v.at.Format("05.000"))
	}
	return fmt.Sprintf("%d charges %s", len(a.charges), b.String())
}

// repeatedAfterUnknown reports whether another request followed a request that may have had an effect.
func (a account) repeatedAfterUnknown() bool {
	for i, v := range a.requests {
		if !v.knownNotDone && i < len(a.requests)-1 {
			return true
		}
	}
	return false
}

func (a account) keys() (keys []string) {
	for _, v := range a.requests {
		keys = append(keys, v.key)
	}
	return keys
}

func newSoakProvider(t testing.TB, rnd *lockedRand) *soakProvider {
	t.Helper()
	b := &soakProvider{rnd: rnd, accounts: map[string]*account{}}
	server := httptest.NewServer(b)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b.url = server.URL
	return b
}

func (p *soakProvider) stopFaults() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healthy = true
}

// account returns a copy of an account.
func (p *soakProvider) account(id string) (a account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.accounts[id]; have != nil {
		a.charges, a.requests = append(a.charges, have.charges...), append(a.requests, have.requests...)
	}
	return a
}

func (p *soakProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if id, found := strings.CutPrefix(r.URL.Path, "/look/"); found {
		p.lookup(w, id)
		return
	}
	p.effect(w, strings.TrimPrefix(r.URL.Path, "/effect/"), r, body)
}

func (p *soakProvider) effect(w http.ResponseWriter, id string, r *http.Request, input []byte) {
	n, before, after := p.rnd.intN(100), p.rnd.duration(300*time.Millisecond), time.Duration(0)
	if p.rnd.intN(4) == 0 {
		after = p.rnd.duration(2 * shortTTL) // may be longer than an unrenewed lease lives
	}
	if p.tellsOutcomes { // often not done, so that the key is free again
		n = 40 + p.rnd.intN(42)
	}
	p.mu.Lock()
	if p.healthy {
		n, before, after = 0, 0, 0
	}
	if p.accounts[id] == nil {
		p.accounts[id] = &account{}
	}
	have := p.accounts[id]
	have.requests = append(have.requests, effectRequest{key: r.Header.Get("Idempotency-Key"), token: r.Header.Get("Flightd-Fencing-Token"), at: time.Now()})
	index := len(have.requests) - 1
	p.mu.Unlock()
	<-time.After(before)
	switch {
	case n < 64:
		made := p.charge(id, index, input, "charged")
		<-time.After(after)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(made) // fails if the caller was killed
	case n < 70 && strings.HasPrefix(id, "hold"): // else every repeat would have to be declined, too
		p.finish(id, index, "declined", false)
		http.Error(w, `"no"`, http.StatusPaymentRequired)
	case n < 82:
		p.finish(id, index, "busy", true)
		http.Error(w, `"busy"`, http.StatusTooManyRequests)
	case n < 86:
		p.charge(id, index, input, "charged and 500")
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 90:
		p.finish(id, index, "500", false)
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 95:
		p.charge(id, index, input, "charged, no answer")
		panic(http.ErrAbortHandler)
	default:
		p.finish(id, index, "no answer", false)
		panic(http.ErrAbortHandler)
	}
}

func (p *soakProvider) finish(id string, index int, outcome string, knownNotDone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &p.accounts[id].requests[index]
	v.outcome, v.knownNotDone = outcome, knownNotDone
}

func (p *soakProvider) charge(id string, index int, input []byte, outcome string) charge {
	p.finish(id, index, outcome, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.accounts[id]
	key := have.requests[index].key
	for _, old := range have.charges {
		if old.key == key && !strings.HasPrefix(id, "hold") {
			return old
		}
	}
	made := charge{ID: "ch_" + id, Note: "é \u2028 </b> \"", Ratio: 0.1, Input: input, key: key}
	have.charges = append(have.charges, made)
	return made
}

func (p *soakProvider) lookup(w http.ResponseWriter, id string) {
	if p.rnd.intN(10) == 0 {
		p.mu.Lock()
		good := p.healthy
		p.mu.Unlock()
		if !good {
			panic(http.ErrAbortHandler)
		}
	}
	account := p.account(id)
	found := struct {
		Happened bool    `json:"happened"`
		Value    *charge `json:"value,omitempty"`
	}{Happened: len(account.charges) > 0}
	if found.Happened {
		found.Value = &account.charges[0]
	}
	_ = json.NewEncoder(w).Encode(found)
}
