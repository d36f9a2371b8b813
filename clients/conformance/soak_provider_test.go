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

func (b *soakProvider) stopFaults() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healthy = true
}

// account returns a copy of an account.
func (b *soakProvider) account(id string) (a account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.accounts[id]; have != nil {
		a.charges, a.requests = append(a.charges, have.charges...), append(a.requests, have.requests...)
	}
	return a
}

func (b *soakProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if id, found := strings.CutPrefix(r.URL.Path, "/look/"); found {
		b.lookup(w, id)
		return
	}
	b.effect(w, strings.TrimPrefix(r.URL.Path, "/effect/"), r, body)
}

func (b *soakProvider) effect(w http.ResponseWriter, id string, r *http.Request, input []byte) {
	n, before, after := b.rnd.intN(100), b.rnd.duration(300*time.Millisecond), time.Duration(0)
	if b.rnd.intN(4) == 0 {
		after = b.rnd.duration(2 * shortTTL) // may be longer than an unrenewed lease lives
	}
	if b.tellsOutcomes { // often not done, so that the key is free again
		n = 40 + b.rnd.intN(42)
	}
	b.mu.Lock()
	if b.healthy {
		n, before, after = 0, 0, 0
	}
	if b.accounts[id] == nil {
		b.accounts[id] = &account{}
	}
	have := b.accounts[id]
	have.requests = append(have.requests, effectRequest{key: r.Header.Get("Idempotency-Key"), token: r.Header.Get("Flightd-Fencing-Token"), at: time.Now()})
	index := len(have.requests) - 1
	b.mu.Unlock()
	<-time.After(before)
	switch {
	case n < 64:
		made := b.charge(id, index, input, "charged")
		<-time.After(after)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(made) // fails if the caller was killed
	case n < 70 && strings.HasPrefix(id, "hold"): // else every repeat would have to be declined, too
		b.finish(id, index, "declined", false)
		http.Error(w, `"no"`, http.StatusPaymentRequired)
	case n < 82:
		b.finish(id, index, "busy", true)
		http.Error(w, `"busy"`, http.StatusTooManyRequests)
	case n < 86:
		b.charge(id, index, input, "charged and 500")
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 90:
		b.finish(id, index, "500", false)
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 95:
		b.charge(id, index, input, "charged, no answer")
		panic(http.ErrAbortHandler)
	default:
		b.finish(id, index, "no answer", false)
		panic(http.ErrAbortHandler)
	}
}

func (b *soakProvider) finish(id string, index int, outcome string, knownNotDone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.accounts[id].requests[index]
	v.outcome, v.knownNotDone = outcome, knownNotDone
}

func (b *soakProvider) charge(id string, index int, input []byte, outcome string) charge {
	b.finish(id, index, outcome, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.accounts[id]
	key := have.requests[index].key
	for _, old := range have.charges {
		if old.key == key && !strings.HasPrefix(id, "hold") {
			return old
		}
	}
	one := charge{ID: "ch_" + id, Note: "é \u2028 </b> \"", Ratio: 0.1, Input: input, key: key}
	have.charges = append(have.charges, one)
	return one
}

func (b *soakProvider) lookup(w http.ResponseWriter, id string) {
	if b.rnd.intN(10) == 0 {
		b.mu.Lock()
		good := b.healthy
		b.mu.Unlock()
		if !good {
			panic(http.ErrAbortHandler)
		}
	}
	account := b.account(id)
	found := struct {
		Happened bool    `json:"happened"`
		Value    *charge `json:"value,omitempty"`
	}{Happened: len(account.charges) > 0}
	if found.Happened {
		found.Value = &account.charges[0]
	}
	_ = json.NewEncoder(w).Encode(found)
}
