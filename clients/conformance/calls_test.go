//go:build clients

package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/wire"
)

// 50 callers of one key in five processes: one effect, one receipt.
func crowd(t *trial) {
	t.provider.shut("/effect")
	var calls []*pending
	for range 5 {
		calls = append(calls, t.driver().begin(t.call(func(c *call) { c.Callers = 10 })))
	}
	t.provider.arrived(t, "/effect")
	eventually(t, "every process asks", patience, func() bool { return len(t.proxy.requests(":open")) >= 5 })
	t.provider.open("/effect")
	sources := map[string]int{}
	var body string
	for _, p := range calls {
		for _, a := range p.all() {
			require.Empty(t, a.Error, a.Detail)
			sources[a.Source]++
			if body == "" {
				body = string(a.Body)
			}
			require.Equal(t, body, string(a.Body))
			require.Equal(t, "ch_1", t.value(a).ID)
		}
	}
	require.Equal(t, 1, sources["executed"], "%v", sources)
	require.Equal(t, 50, sources["executed"]+sources["joined"]+sources["replayed"])
	t.landed(1)
}

// The receipt is replayed byte for byte, to every language, and every language takes the same input for the same.
func replay(t *trial) {
	first := t.driver().do(t.call())
	t.got(first, "executed")
	require.NotEmpty(t, first.Body)
	require.Equal(t, "ch_1", first.ExternalID)
	for _, again := range []answer{
		t.driver().do(t.call()),
		newDriver(t.T, languages()[0], t.setup()).do(t.call()),
	} {
		t.got(again, "replayed")
		require.Equal(t, string(first.Body), string(again.Body))
		require.JSONEq(t, string(first.Value), string(again.Value))
		require.Equal(t, first.ExternalID, again.ExternalID)
	}
	require.JSONEq(t, string(first.Value), string(first.Body), "the value is what the body says")
	t.landed(1)
}

// No input is the same input in every language.
func withoutInput(t *trial) {
	nothing := func(c *call) { c.Input = nil }
	t.got(t.driver().do(t.call(nothing)), "executed")
	t.got(newDriver(t.T, languages()[0], t.setup()).do(t.call(nothing)), "replayed")
	t.got(t.driver().do(t.call()), "idempotency_conflict")
	t.landed(1)
}

// The answer of :open gets lost after the commit: no doubt, no second attempt.
func openLost(t *trial) {
	t.proxy.once(":open", fault{drop: true})
	t.got(t.driver().do(t.call()), "executed")
	require.Len(t, t.proxy.requests(":open"), 2)
	require.Equal(t, nonceOf(t, 0), nonceOf(t, 1), "it is the same open")
	require.False(t, t.landed(1).Tainted)
}

func nonceOf(t *trial, open int) string {
	t.Helper()
	var body struct{ Nonce string }
	require.NoError(t, json.Unmarshal([]byte(t.proxy.requests(":open")[open].body), &body))
	require.NotEmpty(t, body.Nonce)
	return body.Nonce
}

// The answer of the report gets lost after the commit: the receipt stands, and nothing stays on disk.
func reportLost(t *trial) {
	t.proxy.once("/report", fault{drop: true})
	t.got(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.landed(1).Evidence)
	require.Empty(t, t.spooled())
}

// The answer of the report comes byte by byte, and does not come to its end: the report goes to disk as if there were none,
// and is brought again.
func answerDrips(t *trial) {
	t.proxy.once("/report", fault{drip: true})
	t.got(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.landed(1).Evidence)
	require.Empty(t, t.spooled())
}

// Another input under the same key is a mistake, and never a replay.
func conflict(t *trial) {
	d := t.driver()
	t.got(d.do(t.call()), "executed")
	other := d.do(t.call(func(c *call) { c.Input = map[string]any{"cents": 4201} }))
	t.got(other, "idempotency_conflict")
	require.Contains(t, string(other.Value), "/cents")
	t.landed(1)
}

// The provider's no is a receipt like any other: an error for everybody, and nobody asks the provider again.
func declined(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{402} })
	d := t.driver()
	first := d.do(t.call())
	t.got(first, "declined")
	for _, again := range []answer{d.do(t.call()), t.driver().do(t.call())} {
		t.got(again, "declined")
		require.Equal(t, string(first.Value), string(again.Value))
	}
	require.Len(t, t.asked(), 1)
	require.Equal(t, "failed", t.flight().State)
}

// An answer of which nobody knows what it means is held: nobody acts again.
func unknownIsHeld(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.got(d.do(t.call()), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	t.got(t.driver().do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
	require.Equal(t, "in_doubt", t.flight().State)
}

// An error before the effect leaves no doubt, and the key free.
func errorBeforeEffect(t *trial) {
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.ThrowBefore = true })), "not_done")
	require.Equal(t, "queued", t.flight().State)
	t.got(d.do(t.call()), "executed")
	t.landed(2)
}

// What a callback left running when it ended starts no effect any more: its attempt was reported as one that sent nothing.
func leftBehind(t *trial) {
	t.provider.shut("/before")
	d := t.driver()
	t.got(d.do(t.call(t.pausedBefore, func(c *call) { c.LeaveBehind = t.provider.url + "/after" })), "not_done")
	require.Equal(t, "queued", t.flight().State)
	t.provider.open("/before")
	t.provider.arrived(t, "/after")
	require.Empty(t, t.asked())
	t.got(d.do(t.call()), "executed")
	t.landed(2)
}

// Who comes to the effect when the attempt's time is over starts nothing, and leaves no doubt.
func timeIsOver(t *trial) {
	t.provider.shut("/before")
	d := t.driver()
	p := d.begin(t.call(t.pausedBefore, func(c *call) { c.AttemptTimeoutMS = 200 }))
	t.provider.arrived(t, "/before")
	<-time.After(400 * time.Millisecond)
	t.provider.open("/before")
	require.Contains(t, []string{"lease_lost", "not_done"}, p.one().Error)
	require.Empty(t, t.asked())
	f := t.flight()
	require.Equal(t, "queued", f.State)
	require.False(t, f.Tainted)
}

// What the provider surely did not do leaves the key free, too.
func notDone(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{429} })
	d := t.driver()
	t.got(d.do(t.call()), "not_done")
	t.got(d.do(t.call()), "executed")
	require.Len(t, t.asked(), 2)
	require.Equal(t, t.asked()[0].key, t.asked()[1].key, "one intent, one idempotency key")
	require.Less(t, t.asked()[0].token, t.asked()[1].token, "tokens sort by age")
	t.landed(2)
}

// What one of two requests was answered says nothing of the other one, which stands: nobody acts again.
func notDoneBesideWhatStands(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{201, 429} })
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Twice = true })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 2)
	require.Len(t, t.charges(), 1)
}

// After a request of which nobody knows the outcome, the same attempt sends no other one.
func unknownIsNotDoneAgain(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{500, 201} })
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Again = true })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// Under resend it does: the provider knows the key.
func resentInOneAttempt(t *trial) {
	t.provider.set(func(p *provider) { p.status, p.honour = []int{500, 201}, true })
	t.got(t.driver().do(t.call(recovery("resend"), window, func(c *call) { c.Again = true })), "executed")
	require.Len(t, t.asked(), 2)
	t.landed(1)
}

// A provider that has acted may send its caller to another page. What that page answers says nothing of the effect.
func redirected(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{303} })
	d := t.driver()
	t.got(d.do(t.call()), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// Who has waited long enough is told so, and waiting changes nothing.
func busy(t *trial) {
	t.provider.shut("/effect")
	first := t.driver().begin(t.call())
	t.provider.arrived(t, "/effect")
	other := t.driver()
	t.got(other.do(t.call(waitMS(200))), "idempotency_in_flight")
	waiting := other.begin(t.call())
	t.provider.open("/effect")
	t.got(first.one(), "executed")
	a := waiting.one()
	require.Empty(t, a.Error, a.Detail)
	require.NotEqual(t, "executed", a.Source)
	t.landed(1)
}

// Where the server says that it cannot be yet, and that sooner than the wait is over, nobody hammers it.
func noHammering(t *trial) {
	t.provider.set(func(p *provider) { p.hangUp = true })
	a := t.driver().do(t.call(t.verifying, waitMS(2500), func(c *call) { c.SettleMS = 60_000 }))
	t.got(a, "idempotency_in_flight")
	require.LessOrEqual(t, len(t.proxy.requests(":open")), 8)
	require.Len(t, t.charges(), 1)
}

// Servers are tried in turn; one that is not there costs nothing.
func serversInTurn(t *trial) {
	d := t.driver(func(s *setup) { s.Address = "http://127.0.0.1:1, " + strings.TrimPrefix(t.proxy.url, "http://") })
	t.got(d.do(t.call()), "executed")
	t.landed(1)
}

// A client that has acted by one deployment does not act by another one, which knows nothing of that: not while its own is away,
// and not where it is gone.
func twoDeployments(t *trial) {
	t.moveOut()
	other := newHouse(t.T)
	d := t.driver(func(s *setup) { s.Address, s.PatienceMS = t.proxy.url+","+other.address(), 300 })
	t.got(d.do(t.call()), "executed")
	t.house.kill()
	t.got(d.do(t.call()), "wrong_deployment")
	t.house.start()
	t.got(d.do(t.call()), "replayed")
	t.house.wipe()
	t.got(d.do(t.call()), "wrong_deployment")
	require.Len(t, t.asked(), 1)
	require.Empty(t, other.flight(t.key).State)
}

// Without a server no effect starts.
func nobodyThere(t *trial) {
	d := t.driver(func(s *setup) { s.Address, s.PatienceMS = "http://127.0.0.1:1", 300 })
	t.got(d.do(t.call()), "unavailable")
	require.Empty(t, t.asked())
}

// An open whose caller gave up is abandoned, and leaves no doubt: nothing was sent.
func goneWithItsAnswer(t *trial) { goneFor(t, 0) }

// The abandon is sent again where no server takes it for a while.
func goneForLonger(t *trial) { goneFor(t, 7*time.Second) }

func goneFor(t *trial, outage time.Duration) {
	t.got(t.driver().do(t.call(func(c *call) { c.ID += "-warm-up" })), "executed")
	t.provider.set(func(p *provider) { p.charges, p.seen = nil, nil })
	away := true
	t.proxy.always(func(path string) fault {
		return fault{drop: away && strings.HasSuffix(path, ":open"), cut: away && outage > 0 && strings.HasSuffix(path, ":abandon")}
	})
	d := t.driver(func(s *setup) { s.PatienceMS = 300 })
	t.got(d.do(t.call()), "unavailable")
	<-time.After(outage)
	t.proxy.mu.Lock()
	away = false
	t.proxy.mu.Unlock()
	t.house.until(t.key, "is abandoned", patience, func(f wireFlight) bool { return f.State == "queued" && !f.Tainted })
	require.NotEmpty(t, t.proxy.requests(":abandon"))
	t.got(t.driver().do(t.call()), "executed")
	t.landed(2)
}

// Trust counts from when the request was sent: an answer that comes after it is worth nothing, and nothing starts.
func answerTooLate(t *trial) {
	t.proxy.once(":open", fault{late: 2 * time.Second})
	t.got(t.driver(ttl(2)).do(t.call()), "executed")
	f := t.flight()
	require.Equal(t, "succeeded", f.State)
	require.GreaterOrEqual(t, f.Attempts, uint32(2), "the late one was abandoned")
	require.Len(t, t.charges(), 1)
	require.Len(t, t.asked(), 1)
	require.False(t, f.Tainted)
}

// An answer comes when the session that it names has ended, so that its attempt is in doubt. The caller knows that nothing was sent,
// says so, and opens again only when that was answered: else it would be told of its own doubt.
func answerAfterItsSession(t *trial) {
	opens, abandons := 0, 0
	t.proxy.always(func(path string) fault {
		switch {
		case strings.HasSuffix(path, ":open"):
			if opens++; opens == 1 {
				return fault{late: 5 * time.Second}
			}
		case strings.HasSuffix(path, ":abandon"):
			if abandons++; abandons < 4 {
				return fault{cut: true}
			}
		}
		return fault{}
	})
	t.got(t.driver(ttl(2)).do(t.call()), "executed")
	f := t.flight()
	require.Len(t, t.proxy.requests(":open"), 2)
	require.Len(t, t.charges(), 1)
	require.Len(t, t.asked(), 1)
	require.False(t, f.Tainted)
}

// While an effect is in the air its session is renewed, and each renewal says by a digest what is open under it. Copies of a
// renewal that come late end nothing: the effect goes on, and nobody acts beside it.
func lateRenewals(t *trial) {
	t.provider.shut("/effect")
	p := t.driver(ttl(6)).begin(t.call())
	t.provider.arrived(t, "/effect")
	eventually(t, "three renewals", patience, func() bool { return len(t.proxy.requests("/renew")) >= 3 })
	renewals := t.proxy.requests("/renew")
	digest := wire.OpenDigest([]wire.OpenAttempt{{Nonce: wire.NonceHex(nonceOf(t, 0)), Attempt: 1}})
	for _, r := range renewals {
		require.Contains(t, r.body, `"`+digest+`"`)
		answer, err := http.Post(t.house.address()+r.path, "application/json", strings.NewReader(r.body))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	t.got(t.driver().do(t.call(waitMS(200))), "idempotency_in_flight")
	t.provider.open("/effect")
	t.got(p.one(), "executed")
	t.landed(1)
}

// The first server takes every request and no answer of it arrives. The next one gives the same answers: one attempt, one
// receipt, no doubt.
func firstTakesAndIsSilent(t *trial) {
	silent := newProxy(t.T, t.house)
	silent.always(func(path string) fault { return fault{drop: path != "/version"} })
	d := t.driver(func(s *setup) { s.Address = silent.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "executed")
	require.False(t, t.landed(1).Tainted)
	require.NotEmpty(t, silent.requests(":open"))
	require.Empty(t, t.spooled())
}

// What a flight inside the effect of another one says of itself is no word about that: what was sent stays sent.
func nested(t *trial) {
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Inner = t.id + "-inner" })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
	require.Equal(t, "queued", t.house.flight(t.key+"-inner").State)
}
