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
type bank struct {
	url string
	rnd *chance

	mu       sync.Mutex // guards good, accounts and the accounts themselves
	good     bool
	accounts map[string]*account
}

// account records the charges and requests of one id.
type account struct {
	charges []charge
	asked   []visit
}

// effectRequest is one request for an effect. knownNotDone is set if the answer said that nothing happened.
type visit struct {
	key, token string
	at         time.Time
	clear      bool
	what       string
}

func (a account) String() string {
	var b strings.Builder
	for _, v := range a.asked {
		fmt.Fprintf(&b, "[%s token …%s key …%s at %s] ", v.what, v.token[20:40], v.key[:4], v.at.Format("05.000"))
	}
	return fmt.Sprintf("%d charges %s", len(a.charges), b.String())
}

// repeatedAfterUnknown reports whether another request followed a request that may have had an effect.
func (a account) after() bool {
	for i, v := range a.asked {
		if !v.clear && i < len(a.asked)-1 {
			return true
		}
	}
	return false
}

func (a account) keys() (keys []string) {
	for _, v := range a.asked {
		keys = append(keys, v.key)
	}
	return keys
}

func newBank(t testing.TB, rnd *chance) *bank {
	t.Helper()
	b := &bank{rnd: rnd, accounts: map[string]*account{}}
	server := httptest.NewServer(b)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	b.url = server.URL
	return b
}

func (b *bank) beGood() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.good = true
}

// account returns a copy of an account.
func (b *bank) of(id string) (a account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.accounts[id]; have != nil {
		a.charges, a.asked = append(a.charges, have.charges...), append(a.asked, have.asked...)
	}
	return a
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if id, found := strings.CutPrefix(r.URL.Path, "/look/"); found {
		b.look(w, id)
		return
	}
	b.effect(w, strings.TrimPrefix(r.URL.Path, "/effect/"), r, body)
}

func (b *bank) effect(w http.ResponseWriter, id string, r *http.Request, input []byte) {
	n, first, second := b.rnd.n(100), b.rnd.upTo(300*time.Millisecond), time.Duration(0)
	if b.rnd.n(4) == 0 {
		second = b.rnd.upTo(2 * shortTTL) // may be longer than an unrenewed lease lives
	}
	b.mu.Lock()
	if b.good {
		n, first, second = 0, 0, 0
	}
	if b.accounts[id] == nil {
		b.accounts[id] = &account{}
	}
	have := b.accounts[id]
	have.asked = append(have.asked, visit{key: r.Header.Get("Idempotency-Key"), token: r.Header.Get("Flightd-Fencing-Token"), at: time.Now()})
	me := len(have.asked) - 1
	b.mu.Unlock()
	<-time.After(first)
	switch {
	case n < 64:
		made := b.charge(id, me, input, "charged")
		<-time.After(second)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(made) // fails if the caller was killed
	case n < 70 && strings.HasPrefix(id, "hold"): // else every repeat would have to be declined, too
		b.note(id, me, "declined", false)
		http.Error(w, `"no"`, http.StatusPaymentRequired)
	case n < 82:
		b.note(id, me, "busy", true)
		http.Error(w, `"busy"`, http.StatusTooManyRequests)
	case n < 86:
		b.charge(id, me, input, "charged and 500")
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 90:
		b.note(id, me, "500", false)
		http.Error(w, `"oh"`, http.StatusInternalServerError)
	case n < 95:
		b.charge(id, me, input, "charged, no answer")
		panic(http.ErrAbortHandler)
	default:
		b.note(id, me, "no answer", false)
		panic(http.ErrAbortHandler)
	}
}

func (b *bank) note(id string, visit int, what string, nothing bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.accounts[id].asked[visit]
	v.what, v.clear = what, nothing
}

func (b *bank) charge(id string, visit int, input []byte, what string) charge {
	b.note(id, visit, what, false)
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.accounts[id]
	key := have.asked[visit].key
	for _, old := range have.charges {
		if old.key == key && !strings.HasPrefix(id, "hold") {
			return old
		}
	}
	one := charge{ID: "ch_" + id, Note: "é \u2028 </b> \"", Ratio: 0.1, Input: input, key: key}
	have.charges = append(have.charges, one)
	return one
}

func (b *bank) look(w http.ResponseWriter, id string) {
	if b.rnd.n(10) == 0 {
		b.mu.Lock()
		good := b.good
		b.mu.Unlock()
		if !good {
			panic(http.ErrAbortHandler)
		}
	}
	account := b.of(id)
	found := struct {
		Happened bool    `json:"happened"`
		Value    *charge `json:"value,omitempty"`
	}{Happened: len(account.charges) > 0}
	if found.Happened {
		found.Value = &account.charges[0]
	}
	_ = json.NewEncoder(w).Encode(found)
}
