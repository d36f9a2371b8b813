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

// manyCallers: 50 callers of one key in five processes get one effect and one receipt.
func crowd(t *trial) {
	t.provider.shut("/effect")
	var calls []*pending
	for range 5 {
		calls = append(calls, t.driver().begin(t.call(func(c *call) { c.Callers = 10 })))
	}
	t.provider.arrived(t, "/effect")
	eventually(t, "every process sends an open", patience, func() bool { return len(t.proxy.requests(":open")) >= 5 })
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

// replay: the receipt is replayed byte for byte in every language, and all languages compute the same fingerprint.
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
	require.JSONEq(t, string(first.Value), string(first.Body), "the value is the decoded body")
	t.landed(1)
}

// withoutInput: a missing input has the same fingerprint in every language.
func withoutInput(t *trial) {
	nothing := func(c *call) { c.Input = nil }
	t.got(t.driver().do(t.call(nothing)), "executed")
	t.got(newDriver(t.T, languages()[0], t.setup()).do(t.call(nothing)), "replayed")
	t.got(t.driver().do(t.call()), "idempotency_conflict")
	t.landed(1)
}

// openLost: the answer of :open is lost after the commit. The client repeats the open and gets the same attempt.
func openLost(t *trial) {
	t.proxy.once(":open", fault{drop: true})
	t.got(t.driver().do(t.call()), "executed")
	require.Len(t, t.proxy.requests(":open"), 2)
	require.Equal(t, nonceOf(t, 0), nonceOf(t, 1), "the repeat has the same nonce")
	require.False(t, t.landed(1).Tainted)
}

func nonceOf(t *trial, open int) string {
	t.Helper()
	var body struct{ Nonce string }
	require.NoError(t, json.Unmarshal([]byte(t.proxy.requests(":open")[open].body), &body))
	require.NotEmpty(t, body.Nonce)
	return body.Nonce
}

// reportLost: the answer of the report is lost after the commit. The receipt is valid, and no report stays on disk.
func reportLost(t *trial) {
	t.proxy.once("/report", fault{drop: true})
	t.got(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.landed(1).Evidence)
	require.Empty(t, t.spooled())
}

// answerDrips: the answer of the report arrives byte by byte and never ends. The report is spooled and sent again, as
// after a missing answer.
func answerDrips(t *trial) {
	t.proxy.once("/report", fault{drip: true})
	t.got(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.landed(1).Evidence)
	require.Empty(t, t.spooled())
}

// conflict: another input under the same key is an error, never a replay.
func conflict(t *trial) {
	d := t.driver()
	t.got(d.do(t.call()), "executed")
	other := d.do(t.call(func(c *call) { c.Input = map[string]any{"cents": 4201} }))
	t.got(other, "idempotency_conflict")
	require.Contains(t, string(other.Value), "/cents")
	t.landed(1)
}

// declined: a declined effect has a receipt. All callers get the error, and no second request reaches the provider.
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

// unknownIsHeld: after an answer with an unknown outcome the flight is held, and no second request is sent.
func unknownIsHeld(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.got(d.do(t.call()), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	t.got(t.driver().do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
	require.Equal(t, "in_doubt", t.flight().State)
}

// errorBeforeEffect: an error before the effect leaves no doubt, and the next call acts.
func errorBeforeEffect(t *trial) {
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.ThrowBefore = true })), "not_done")
	require.Equal(t, "queued", t.flight().State)
	t.got(d.do(t.call()), "executed")
	t.landed(2)
}

// workAfterReturn: a goroutine that a callback left running starts no effect after the callback has returned, because
// the attempt was already reported as not done.
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

// timeoutBeforeEffect: a callback that reaches its effect after the attempt's time-out starts nothing and leaves no
// doubt.
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

// notDone: after an answer which says that nothing happened, the next call acts.
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

// notDoneAfterSuccess: "not done" for one of two requests does not cover the other one, which succeeded: no caller acts
// again.
func notDoneBesideWhatStands(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{201, 429} })
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Twice = true })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 2)
	require.Len(t, t.charges(), 1)
}

// unknownStopsAttempt: after a request with an unknown outcome the same attempt sends no other request.
func unknownIsNotDoneAgain(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{500, 201} })
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Again = true })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// resendInOneAttempt: under resend the attempt may send a second request, because the provider deduplicates.
func resentInOneAttempt(t *trial) {
	t.provider.set(func(p *provider) { p.status, p.honour = []int{500, 201}, true })
	t.got(t.driver().do(t.call(recovery("resend"), window, func(c *call) { c.Again = true })), "executed")
	require.Len(t, t.asked(), 2)
	t.landed(1)
}

// redirected: a provider that has acted may redirect. The answer at the new location says nothing about the effect.
func redirected(t *trial) {
	t.provider.set(func(p *provider) { p.status = []int{303} })
	d := t.driver()
	t.got(d.do(t.call()), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
}

// busy: a caller whose wait ends gets idempotency_in_flight. A longer wait returns the receipt.
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

// noHammering: a client that must wait for a verification repeats its open only a few times.
func noHammering(t *trial) {
	t.provider.set(func(p *provider) { p.hangUp = true })
	a := t.driver().do(t.call(t.verifying, waitMS(2500), func(c *call) { c.SettleMS = 60_000 }))
	t.got(a, "idempotency_in_flight")
	require.LessOrEqual(t, len(t.proxy.requests(":open")), 8)
	require.Len(t, t.charges(), 1)
}

// serversInTurn: the client tries the servers in turn and skips one that is not reachable.
func serversInTurn(t *trial) {
	d := t.driver(func(s *setup) { s.Address = "http://127.0.0.1:1, " + strings.TrimPrefix(t.proxy.url, "http://") })
	t.got(d.do(t.call()), "executed")
	t.landed(1)
}

// twoDeployments: a client that has acted with one deployment never acts with another one, which does not know its
// effects: neither while its own is down, nor after its own has lost its data.
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

// abandonAfterLostAnswer: an open whose caller's time-out ended is abandoned and leaves no doubt, because nothing was
// sent.
func goneWithItsAnswer(t *trial) { goneFor(t, 0) }

// abandonAfterOutage: the abandon is repeated while no server is reachable.
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

// answerAfterTrust: trust counts from the sending of the request. An answer that arrives after its end starts no
// effect.
func answerTooLate(t *trial) {
	t.proxy.once(":open", fault{late: 2 * time.Second})
	t.got(t.driver(ttl(2)).do(t.call()), "executed")
	f := t.flight()
	require.Equal(t, "succeeded", f.State)
	require.GreaterOrEqual(t, f.Attempts, uint32(2), "the late attempt was abandoned")
	require.Len(t, t.charges(), 1)
	require.Len(t, t.asked(), 1)
	require.False(t, f.Tainted)
}

// answerAfterItsSession: an answer arrives after the end of its session, so the attempt is in doubt. The client knows
// that nothing was sent and abandons the attempt. It opens again only after the abandon was answered: otherwise its own
// doubt would be the answer.
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

// lateRenewals: while an effect runs, its session is renewed, and each renewal carries a digest of the open attempts. A
// delayed copy of a renewal ends no attempt: the effect continues, and no other caller acts.
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

// firstServerNeverAnswers: the first server executes every request, but its answers are lost. The next server returns
// the same answers: one attempt, one receipt, no doubt.
func firstTakesAndIsSilent(t *trial) {
	silent := newProxy(t.T, t.house)
	silent.always(func(path string) fault { return fault{drop: path != "/version"} })
	d := t.driver(func(s *setup) { s.Address = silent.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "executed")
	require.False(t, t.landed(1).Tainted)
	require.NotEmpty(t, silent.requests(":open"))
	require.Empty(t, t.spooled())
}

// nested: "not done" of a flight inside another flight's effect does not apply to the outer effect, which was sent.
func nested(t *trial) {
	d := t.driver()
	t.got(d.do(t.call(func(c *call) { c.Inner = t.id + "-inner" })), "in_doubt")
	t.got(d.do(t.call()), "in_doubt")
	require.Len(t, t.asked(), 1)
	require.Equal(t, "queued", t.house.flight(t.key+"-inner").State)
}
