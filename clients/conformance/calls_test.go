//go:build clients

package conformance

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// manyCallers: 50 callers of one key in five processes get one effect and one receipt.
func manyCallers(t *trial) {
	t.provider.block("/effect")
	var calls []*pending
	for range 5 {
		calls = append(calls, t.driver().begin(t.call(func(c *call) { c.Callers = 10 })))
	}
	t.provider.waitArrived(t, "/effect")
	eventually(t, "every process sends an open", waitTimeout, func() bool { return len(t.proxy.requests(":open")) >= 5 })
	t.provider.unblock("/effect")
	sources := map[string]int{}
	var body string
	for _, p := range calls {
		for _, a := range p.wait() {
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
	t.requireOneEffect(1)
}

// replay: the receipt is replayed byte for byte in every language, and all languages compute the same fingerprint.
func replay(t *trial) {
	first := t.driver().do(t.call())
	t.requireAnswer(first, "executed")
	require.NotEmpty(t, first.Body)
	require.Equal(t, "ch_1", first.ExternalID)
	for _, again := range []answer{
		t.driver().do(t.call()),
		newDriver(t.T, languages()[0], t.setup()).do(t.call()),
	} {
		t.requireAnswer(again, "replayed")
		require.Equal(t, string(first.Body), string(again.Body))
		require.JSONEq(t, string(first.Value), string(again.Value))
		require.Equal(t, first.ExternalID, again.ExternalID)
	}
	require.JSONEq(t, string(first.Value), string(first.Body), "the value is the decoded body")
	t.requireOneEffect(1)
}

// withoutInput: a missing input has the same fingerprint in every language.
func withoutInput(t *trial) {
	nothing := func(c *call) { c.Input = nil }
	t.requireAnswer(t.driver().do(t.call(nothing)), "executed")
	t.requireAnswer(newDriver(t.T, languages()[0], t.setup()).do(t.call(nothing)), "replayed")
	t.requireAnswer(t.driver().do(t.call()), "idempotency_conflict")
	t.requireOneEffect(1)
}

// openLost: the answer of :open is lost after the commit. The client repeats the open and gets the same attempt.
func openLost(t *trial) {
	t.proxy.failOnce(":open", fault{drop: true})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	require.Len(t, t.proxy.requests(":open"), 2)
	require.Equal(t, nonceOf(t, 0), nonceOf(t, 1), "the repeat has the same nonce")
	require.False(t, t.requireOneEffect(1).Tainted)
}

// openIncomplete: a server that has not received the whole open is asked again.
func openIncomplete(t *trial) {
	t.proxy.failOnce(":open", fault{cut: true, own: true, canned: &cannedAnswer{408, "application/problem+json", `{"code":"request_incomplete","status":408,"retryable":true}`}})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireOneEffect(1)
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
	t.proxy.failOnce("/report", fault{drop: true})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.requireOneEffect(1).Evidence)
	require.Empty(t, t.spooled())
}

// answerDrips: the answer of the report arrives byte by byte and never ends. The report is spooled and sent again, as
// after a missing answer.
func answerDrips(t *trial) {
	t.proxy.failOnce("/report", fault{drip: true})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	require.Empty(t, t.requireOneEffect(1).Evidence)
	require.Empty(t, t.spooled())
}

// conflict: another input under the same key is an error, never a replay.
func conflict(t *trial) {
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "executed")
	other := d.do(t.call(func(c *call) { c.Input = map[string]any{"cents": 4201} }))
	t.requireAnswer(other, "idempotency_conflict")
	require.Contains(t, string(other.Value), "/cents")
	t.requireOneEffect(1)
}

// declined: a declined effect has a receipt. All callers get the error, and no second request reaches the provider.
func declined(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{402} })
	d := t.driver()
	first := d.do(t.call())
	t.requireAnswer(first, "declined")
	for _, again := range []answer{d.do(t.call()), t.driver().do(t.call())} {
		t.requireAnswer(again, "declined")
		require.Equal(t, string(first.Value), string(again.Value))
	}
	require.Len(t, t.providerRequests(), 1)
	require.Equal(t, "failed", t.flight().State)
}

// swallowedError: an effect with an error that its caller has caught is no success without a result of the caller. A Go handler
// always returns an outcome, so it has no such call.
func swallowedError(t *trial) {
	if t.language.name == "go" {
		t.Skip("a handler in Go always returns an outcome")
	}
	t.provider.configure(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.Swallow = true })), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// workThatHasNotRun: a generator or a function in place of a result is no success, since the work in it has not run. The types of Go reject it.
func workThatHasNotRun(t *trial) {
	if t.language.name == "go" {
		t.Skip("the types of Go reject it")
	}
	a := t.driver().do(t.call(func(c *call) { c.Unrun = true }))
	require.Contains(t, []string{"in_doubt", "unknown"}, a.Error, a.Detail)
	require.Equal(t, "in_doubt", t.flight().State)
	require.Empty(t, t.providerRequests())
}

// failedLookUpIsNamed: a look-up that fails until the wait is over is the error of the call, and the effect is not repeated.
func failedLookUpIsNamed(t *trial) {
	t.provider.configure(func(p *provider) { p.dropConnection, p.lookUpsFail = true, 1000 })
	look := func(c *call) { c.Recovery, c.SettleMS, c.Look, c.WaitMS = "verify", 50, t.provider.url+"/look", 8000 }
	a := t.driver().do(t.call(look))
	require.Equal(t, "in_doubt", a.Error, a.Detail)
	require.Contains(t, a.Detail, "the look-up failed")
	require.Len(t, t.providerRequests(), 1)
	t.provider.configure(func(p *provider) { p.lookUpsFail = 0 })
	t.requireAnswer(t.driver().do(t.call(look, waitMS(20_000))), "replayed")
	require.Len(t, t.providerRequests(), 1)
}

// overrunIsNamed: the history shows that an attempt has taken longer than its time-out, whatever its outcome is.
func overrunIsNamed(t *trial) {
	t.provider.block("/effect")
	p := t.driver().begin(t.call(func(c *call) { c.AttemptTimeoutMS = 3000 }))
	t.provider.waitArrived(t, "/effect")
	<-time.After(3500 * time.Millisecond)
	t.provider.unblock("/effect")
	p.waitOne()
	t.waitHistory(t.key, "time-out: the handler took longer than its attempt may")
	require.Len(t, t.providerRequests(), 1)
}

// unknownIsHeld: after an answer with an unknown outcome the flight is held, and no second request is sent.
func unknownIsHeld(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	t.requireAnswer(t.driver().do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
	require.Equal(t, "in_doubt", t.flight().State)
}

// resolvedWithoutReceipt: callers of a flight that a person resolved without a receipt get the same error in every language.
func resolvedWithoutReceipt(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{500} })
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "in_doubt")
	f := t.flight()
	r, err := t.server.request(http.MethodPost, "/v1/flights/"+f.ID+"/resolve", `{"result":"happened","no_receipt":true,"reason":"seen"}`, "If-Match", `"`+f.Version+`"`)
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, http.StatusOK, r.StatusCode)
	for _, d := range []*driver{d, t.driver()} {
		a := d.do(t.call())
		t.requireAnswer(a, "receipt_truncated")
		require.Contains(t, a.Detail, "a person resolved it")
	}
	require.Len(t, t.providerRequests(), 1)
}

// errorBeforeEffect: an error before the effect leaves no doubt, and the next call acts.
func errorBeforeEffect(t *trial) {
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.ThrowBefore = true })), "not_done")
	require.Equal(t, "ready", t.flight().State)
	t.requireAnswer(d.do(t.call()), "executed")
	t.requireOneEffect(2)
}

// workAfterReturn: a goroutine that a callback left running starts no effect after the callback has returned, because
// the attempt was already reported as not done.
func workAfterReturn(t *trial) {
	t.provider.block("/before")
	d := t.driver()
	t.requireAnswer(d.do(t.call(t.pausedBefore, func(c *call) { c.LeaveBehind = t.provider.url + "/after" })), "not_done")
	require.Equal(t, "ready", t.flight().State)
	t.provider.unblock("/before")
	t.provider.waitArrived(t, "/after")
	require.Empty(t, t.providerRequests())
	t.requireAnswer(d.do(t.call()), "executed")
	t.requireOneEffect(2)
}

// timeoutBeforeEffect: a callback that reaches its effect after the attempt's time-out starts nothing and leaves no
// doubt.
func timeoutBeforeEffect(t *trial) {
	t.provider.block("/before")
	d := t.driver()
	p := d.begin(t.call(t.pausedBefore, func(c *call) { c.AttemptTimeoutMS = 2000 }))
	t.provider.waitArrived(t, "/before")
	<-time.After(2500 * time.Millisecond)
	t.provider.unblock("/before")
	require.Contains(t, []string{"lease_lost", "not_done"}, p.waitOne().Error)
	require.Empty(t, t.providerRequests())
	f := t.flight()
	require.Equal(t, "ready", f.State)
	require.False(t, f.Tainted)
}

// notDone: after an answer which says that nothing happened, the next call acts.
func notDone(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{429} })
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "not_done")
	t.requireAnswer(d.do(t.call()), "executed")
	require.Len(t, t.providerRequests(), 2)
	require.Equal(t, t.providerRequests()[0].key, t.providerRequests()[1].key, "one intent, one idempotency key")
	require.Less(t, t.providerRequests()[0].token, t.providerRequests()[1].token, "tokens sort by age")
	t.requireOneEffect(2)
}

// notDoneAfterSuccess: "not done" for one of two requests does not cover the other one, which succeeded: no caller acts
// again.
func notDoneAfterSuccess(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{201, 429} })
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.Twice = true })), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 2)
	require.Len(t, t.charges(), 1)
}

// unknownStopsAttempt: after a request with an unknown outcome the same attempt sends no other request.
func unknownStopsAttempt(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{500, 201} })
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.Again = true })), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// resendInOneAttempt: under resend the attempt may send a second request, because the provider deduplicates.
func resendInOneAttempt(t *trial) {
	t.provider.configure(func(p *provider) { p.status, p.honour = []int{500, 201}, true })
	t.requireAnswer(t.driver().do(t.call(recovery("resend"), longWindow, func(c *call) { c.Again = true })), "executed")
	require.Len(t, t.providerRequests(), 2)
	t.requireOneEffect(1)
}

// redirected: a provider that has acted may redirect. The answer at the new location says nothing about the effect.
func redirected(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{303} })
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// busy: a caller whose wait ends gets idempotency_in_flight. A longer wait returns the receipt.
func busy(t *trial) {
	t.provider.block("/effect")
	first := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	other := t.driver()
	t.requireAnswer(other.do(t.call(waitMS(200))), "idempotency_in_flight")
	waiting := other.begin(t.call())
	t.provider.unblock("/effect")
	t.requireAnswer(first.waitOne(), "executed")
	a := waiting.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.NotEqual(t, "executed", a.Source)
	t.requireOneEffect(1)
}

// noHammering: a client that must wait for a verification repeats its open only a few times.
func noHammering(t *trial) {
	t.provider.configure(func(p *provider) { p.dropConnection = true })
	a := t.driver().do(t.call(t.withLookup, waitMS(2500), func(c *call) { c.SettleMS = 60_000 }))
	t.requireAnswer(a, "idempotency_in_flight")
	require.LessOrEqual(t, len(t.proxy.requests(":open")), 8)
	require.Len(t, t.charges(), 1)
}

// serversInTurn: the client tries the servers in turn and skips one that is not reachable.
func serversInTurn(t *trial) {
	d := t.driver(func(s *setup) { s.Address = "http://127.0.0.1:1, " + strings.TrimPrefix(t.proxy.url, "http://") })
	t.requireAnswer(d.do(t.call()), "executed")
	t.requireOneEffect(1)
}

// twoDeployments: a client that has acted with one deployment never acts with another one, which does not know its
// effects: neither while its own is down, nor after its own has lost its data.
func twoDeployments(t *trial) {
	t.useOwnServer()
	other := startServer(t.T, secure)
	d := t.driver(func(s *setup) { s.Address, s.RetryTimeoutMS = t.proxy.url+","+other.address(), 300 })
	t.requireAnswer(d.do(t.call()), "executed")
	t.server.kill()
	t.requireTurnedAway(d.do(t.call()))
	t.server.start()
	t.requireAnswer(d.do(t.call()), "replayed")
	t.server.resetData()
	t.requireTurnedAway(d.do(t.call()))
	require.Len(t, t.providerRequests(), 1)
	require.Empty(t, other.flight(t.key).State)
}

// pinnedDeployment: a caller with FLIGHTD_DEPLOYMENT acts with that deployment only, also in its first call.
func pinnedDeployment(t *trial) {
	answer, err := t.server.request(http.MethodGet, "/version", "")
	require.NoError(t, err)
	defer answer.Body.Close()
	var version wire.Version
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&version))
	pin := func(deployment string) *driver {
		return t.driver(func(s *setup) { s.env = append(s.env, "FLIGHTD_DEPLOYMENT="+deployment) })
	}
	require.Equal(t, "wrong_deployment", pin("d-another").do(t.call()).Error)
	require.Empty(t, t.providerRequests())
	require.Empty(t, t.flight().State)
	t.requireAnswer(pin(version.Deployment).do(t.call()), "executed")
}

// rejectedWhileAnotherIsDown: one server does not admit the caller, and the other one gives no answer. The caller is told so at
// once, in both orders: a person must replace the token. If the other one has executed the open, it is abandoned.
func rejectedWhileAnotherIsDown(t *trial) {
	other := newProxy(t.T, t.server)
	other.setFaults(func(string) fault {
		return fault{cut: true, own: true, canned: &cannedAnswer{401, "application/problem+json", `{"code":"unauthenticated","status":401,"retryable":false}`}}
	})
	addresses := []string{other.url, t.proxy.url}
	for range addresses {
		for _, f := range []fault{{cut: true}, {drop: true}} {
			t.proxy.setFaults(func(path string) fault {
				if strings.HasSuffix(path, ":open") || strings.HasSuffix(path, ":batch") {
					return f
				}
				return fault{}
			})
			d := t.driver(func(s *setup) { // it would repeat for longer than the test waits
				s.Address, s.RetryTimeoutMS = strings.Join(addresses, ","), int(2*waitTimeout/time.Millisecond)
			})
			for range 3 { // after a failure the client asks the other server first
				t.requireAnswer(d.do(t.call()), "unauthenticated")
			}
			t.waitFlight("is not in doubt", func(f wireFlight) bool { return f.State == "" || f.State == "ready" && !f.Tainted })
		}
		slices.Reverse(addresses)
	}
	require.Empty(t, t.providerRequests())
}

// Without a server no effect starts.
func noServer(t *trial) {
	d := t.driver(func(s *setup) { s.Address, s.RetryTimeoutMS = "http://127.0.0.1:1", 300 })
	t.requireAnswer(d.do(t.call(waitMS(20_000))), "unavailable")
	require.Empty(t, t.providerRequests())
}

// refusedWithinTheWait: a call that begins while every server refuses connections ends with its wait, after one round. It would take longer
// than the test waits otherwise.
func refusedWithinTheWait(t *trial) {
	d := t.driver(func(s *setup) { s.RetryTimeoutMS = int(2 * waitTimeout / time.Millisecond) })
	t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-warm-up" })), "executed") // it is connected
	t.proxy.refuse()
	for _, wait := range []int{1, 500} {
		t.requireAnswer(d.do(t.call(waitMS(wait))), "unavailable")
	}
	require.Len(t, t.charges(), 1)
}

// abandonAfterLostAnswer: an open whose caller's time-out ended is abandoned and leaves no doubt, because nothing was
// sent.
func abandonAfterLostAnswer(t *trial) { abandonAfter(t, 0) }

// abandonAfterOutage: the abandon is repeated while no server is reachable.
func abandonAfterOutage(t *trial) { abandonAfter(t, 7*time.Second) }

func abandonAfter(t *trial, outage time.Duration) {
	t.requireAnswer(t.driver().do(t.call(func(c *call) { c.ID += "-warm-up" })), "executed")
	t.provider.configure(func(p *provider) { p.charges, p.requests = nil, nil })
	away := true
	t.proxy.setFaults(func(path string) fault {
		return fault{drop: away && strings.HasSuffix(path, ":open"), cut: away && outage > 0 && strings.HasSuffix(path, ":abandon")}
	})
	d := t.driver(func(s *setup) { s.RetryTimeoutMS = 300 })
	t.requireAnswer(d.do(t.call()), "unavailable")
	<-time.After(outage)
	t.proxy.mu.Lock()
	away = false
	t.proxy.mu.Unlock()
	t.server.waitFlight(t.key, "is abandoned", waitTimeout, func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
	require.NotEmpty(t, t.proxy.requests(":abandon"))
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireOneEffect(2)
}

// answerAfterTrust: trust counts from the sending of the request. An answer that arrives after its end starts no
// effect.
func answerAfterTrust(t *trial) {
	t.proxy.failOnce(":open", fault{delay: 2 * time.Second})
	t.requireAnswer(t.driver(ttl(2)).do(t.call()), "executed")
	f := t.flight()
	require.Equal(t, "succeeded", f.State)
	require.GreaterOrEqual(t, f.Attempts, uint32(2), "the late attempt was abandoned")
	require.Len(t, t.charges(), 1)
	require.Len(t, t.providerRequests(), 1)
	require.False(t, f.Tainted)
}

// answerAfterItsSession: an answer arrives after the end of its session, so the attempt is in doubt. The client knows
// that nothing was sent and abandons the attempt. It opens again only after the abandon was answered: otherwise its own
// doubt would be the answer.
func answerAfterItsSession(t *trial) {
	opens, abandons := 0, 0
	t.proxy.setFaults(func(path string) fault {
		switch {
		case strings.HasSuffix(path, ":open"):
			if opens++; opens == 1 {
				return fault{delay: 5 * time.Second}
			}
		case strings.HasSuffix(path, ":abandon"):
			if abandons++; abandons < 4 {
				return fault{cut: true}
			}
		}
		return fault{}
	})
	t.requireAnswer(t.driver(ttl(2)).do(t.call()), "executed")
	f := t.flight()
	require.GreaterOrEqual(t, len(t.proxy.requests(":open")), 2)
	require.Len(t, t.charges(), 1)
	require.Len(t, t.providerRequests(), 1)
	require.False(t, f.Tainted)
}

// lateRenewals: while an effect runs, its session is renewed, and each renewal carries a digest of the open attempts. A
// delayed copy of a renewal ends no attempt: the effect continues, and no other caller acts.
func lateRenewals(t *trial) {
	t.provider.block("/effect")
	p := t.driver(ttl(6)).begin(t.call())
	t.provider.waitArrived(t, "/effect")
	eventually(t, "three renewals", waitTimeout, func() bool { return len(t.proxy.requests("/renew")) >= 3 })
	renewals := t.proxy.requests("/renew")
	digest := wire.OpenDigest([]wire.OpenAttempt{{Nonce: wire.NonceHex(nonceOf(t, 0)), Attempt: 1}})
	for _, r := range renewals {
		require.Contains(t, r.body, `"`+digest+`"`)
		answer, err := t.server.request(http.MethodPost, r.path, r.body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	t.requireAnswer(t.driver().do(t.call(waitMS(200))), "idempotency_in_flight")
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "executed")
	t.requireOneEffect(1)
}

// firstServerNeverAnswers: the first server executes every request, but its answers are lost. The next server returns
// the same answers: one attempt, one receipt, no doubt.
func firstServerNeverAnswers(t *trial) {
	silent := newProxy(t.T, t.server)
	silent.setRewrite(func(answer http.Header) { // as the leader it gets the open first
		answer.Set(wire.HeaderNode, "a")
		answer.Set(wire.HeaderLeader, "a")
	})
	silent.setFaults(func(path string) fault { return fault{drop: path != "/version"} })
	d := t.driver(func(s *setup) { s.Address = silent.url + "," + t.proxy.url })
	t.requireAnswer(d.do(t.call()), "executed")
	require.False(t, t.requireOneEffect(1).Tainted)
	require.NotEmpty(t, silent.requests(":open"))
	require.Empty(t, t.spooled())
}

// nested: "not done" of a flight inside another flight's effect does not apply to the outer effect, which was sent.
func nested(t *trial) {
	d := t.driver()
	t.requireAnswer(d.do(t.call(func(c *call) { c.Inner = t.id + "-inner" })), "in_doubt")
	t.requireAnswer(d.do(t.call()), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
	require.Equal(t, "ready", t.server.flight(t.key+"-inner").State)
}
