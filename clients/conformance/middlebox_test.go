//go:build clients

package conformance

import (
	"fmt"
	"maps"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// cannedAnswers are answers of load balancers, proxies and captive portals that do not come from flightd.
func cannedAnswers() map[string]cannedAnswer {
	html := func(status int) cannedAnswer { return cannedAnswer{status, "text/html", "<html>not flightd</html>"} }
	return map[string]cannedAnswer{
		"bad-gateway": html(502), "timed-out": html(408), "not-found": html(404), "moved": html(302), "welcome": html(200),
		"numeric-code":       {503, "application/json", `{"code":503,"message":"no healthy upstream"}`},
		"unknown-code":       {403, "application/json", `{"code":"forbidden","message":"by the firewall"}`},
		"empty-body":         {200, "application/json", ""},
		"truncated":          {200, "application/json", `{"id":"fl_x","state":"succ`},
		"unknown-state":      {200, "application/json", `{"id":"1","state":"maintenance"}`},
		"maintenance":        {200, "application/json", `{"status":"maintenance"}`},
		"a-list":             {502, "application/json", `[1]`},
		"forbidden":          {403, "application/problem+json", `{"code":"forbidden","status":403,"retryable":false}`}, // flightd's own code
		"unauthenticated":    {401, "application/problem+json", `{"code":"unauthenticated","status":401,"retryable":false}`},
		"a-problem-document": {500, "application/problem+json", `{"type":"about:blank","title":"no","status":500}`},
	}
}

// rejects reports whether the answer means that the request was not executed.
func (a *cannedAnswer) rejects() bool { return a.status >= 300 && a.status < 500 && a.status != 408 }

// failUntil injects f into all requests to paths with the suffix, until over is called.
func (p *proxy) failUntil(suffix string, f fault) (over func()) {
	p.setFaults(func(path string) fault {
		if strings.HasSuffix(path, suffix) {
			return f
		}
		return fault{}
	})
	return func() { p.setFaults(func(string) fault { return fault{} }) }
}

// failSingle injects f into all requests to paths with the suffix. The server knows no batches, in which the requests would come otherwise.
func (p *proxy) failSingle(suffix string, f fault) {
	p.setFaults(func(path string) fault {
		switch {
		case strings.HasSuffix(path, suffix):
			return f
		case strings.HasSuffix(path, ":batch"):
			return fault{cut: true, canned: &cannedAnswer{404, "application/problem+json", `{"code":"not_found","status":404,"retryable":false}`}}
		}
		return fault{}
	})
}

// middleboxScenarios are the scenarios in which a middlebox answers in flightd's place.
func middleboxScenarios() (all []scenario) {
	for name, page := range cannedAnswers() {
		if page.rejects() {
			all = append(all, scenario{"rejected-by-" + name, func(t *trial) { rejectedBy(t, page) }})
		}
	}
	return append(all, scenario{"reports-answered-by-others", reportsAnsweredByOthers}, scenario{"opens-answered-by-others", opensAnsweredByOthers},
		scenario{"report-rejected", reportRejected}, scenario{"answer-for-another-flight", answerForAnotherFlight},
		scenario{"receipt-replaced", receiptReplaced},
		scenario{"answer-for-another-caller", answerForAnotherCaller})
}

// rejectionOfAnother is a rejection of a request about another flight.
func rejectionOfAnother(code string) cannedAnswer {
	return cannedAnswer{409, "application/problem+json", fmt.Sprintf(`{"code":%q,"status":409,"retryable":false,"flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`, code)}
}

// opensAnsweredByOthers: flightd executes opens, but middleboxes answer them. The caller's time-out ends, and the client abandons the
// attempts. No effect was started, so no flight is tainted.
func opensAnsweredByOthers(t *trial) {
	pages := cannedAnswers()
	maps.DeleteFunc(pages, func(_ string, a cannedAnswer) bool { return a.rejects() })
	pages["rejection-of-another-flight"] = rejectionOfAnother("in_doubt")
	d := t.driver(func(s *setup) { s.RetryTimeoutMS = 300 })
	for name, page := range pages {
		t.proxy.failSingle(":open", fault{canned: &page})
		a := d.do(t.call(func(c *call) { c.ID += "-" + name }))
		require.NotEmpty(t, a.Error+a.Detail, name)
	}
	t.proxy.setFaults(nil)
	other := t.driver()
	for name := range pages {
		t.server.waitFlight(t.key+"-"+name, "is abandoned", waitTimeout, func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
		t.requireAnswer(other.do(t.call(func(c *call) { c.ID += "-" + name })), "executed")
		require.Equal(t, uint32(2), t.server.flight(t.key+"-"+name).Attempts, name)
	}
	require.Len(t, t.charges(), len(pages))
}

// rejectedBy: if the first server rejects the caller, or is not flightd, the client asks the next server.
func rejectedBy(t *trial, page cannedAnswer) {
	first := newProxy(t.T, t.server)
	first.setFaults(func(string) fault { return fault{cut: true, canned: &page} })
	d := t.driver(func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.requireAnswer(d.do(t.call()), "executed")
	t.requireOneEffect(1)
	require.NotEmpty(t, first.requests("/version"))
	require.Empty(t, t.spooled())
}

// reportRejected: if the first server rejects a report, the client sends it to the next server.
func reportRejected(t *trial) {
	page := cannedAnswers()["forbidden"]
	first := newProxy(t.T, t.server)
	first.failUntil("/report", fault{cut: true, canned: &page})
	over := t.proxy.failUntil("/report", fault{cut: true})
	d := t.driver(reportWait(300), func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.requireAnswer(d.do(t.call()), "unrecorded")
	over()
	t.waitFlight("has its receipt", succeeded)
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
}

// answerForAnotherFlight: an answer about another flight, mixed up by a middlebox, lets no caller act, because no
// attempt was opened for the caller's flight. The client repeats the request.
func answerForAnotherFlight(t *trial) {
	const other = `{"decision":"proceed","flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa","key":"default/charge/another","generation":1,"attempt":1,
		"fencing_token":"none","idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`
	t.proxy.failOnce(":open", fault{cut: true, canned: &cannedAnswer{201, "application/json", other}})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.providerRequests()[0].key)
	t.requireOneEffect(1)
}

// receiptReplaced: the client accepts receipt bytes only if they match the digest, not a middlebox's answer.
func receiptReplaced(t *trial) {
	for name, page := range cannedAnswers() {
		if page.status != 200 {
			continue
		}
		t.proxy.failOnce("/receipt", fault{cut: true, canned: &page})
		a := t.driver().do(t.call())
		require.Empty(t, a.Error, a.Detail)
		require.Contains(t, string(a.Body), "ch_1", name)
	}
	t.requireOneEffect(1)
}

// answerForAnotherCaller: the answer to another caller of the same flight lets no caller act, because the one open
// attempt belongs to the other caller. The client repeats the request.
func answerForAnotherCaller(t *trial) {
	id := flight.MustKey(t.key).FlightID()
	other := fmt.Sprintf(`{"decision":"proceed","nonce":"another","flight_id":%q,"key":%q,"generation":1,"attempt":1,"fencing_token":"none",
		"idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`, id, t.key)
	t.proxy.failOnce(":open", fault{cut: true, canned: &cannedAnswer{201, "application/json", other}})
	t.requireAnswer(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.providerRequests()[0].key)
	t.requireOneEffect(1)
}

// reportsAnsweredByOthers: only flightd itself can store or reject a report, and it never rejects one for missing credentials. After any other
// answer, also one to another request about the same flight, the report stays in the spool and is delivered later.
func reportsAnsweredByOthers(t *trial) {
	const toAnOpen = `{"code":"expired","status":410,"retryable":false,"key":%q,"flight_id":%q}`
	pages := cannedAnswers()
	pages["rejection-of-another-flight"] = rejectionOfAnother("fenced")
	pages["end-of-session"] = cannedAnswer{410, "application/problem+json", `{"code":"lease_lost","status":410,"retryable":false}`}
	key := t.key + "-as-an-open"
	pages["as-an-open"] = cannedAnswer{410, "application/problem+json", fmt.Sprintf(toAnOpen, key, flight.MustKey(key).FlightID())}
	d, n := t.driver(reportWait(300)), 0
	for name, page := range pages {
		t.proxy.failSingle("/report", fault{cut: true, canned: &page})
		t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-" + name })), "unrecorded")
		n++
		require.Len(t, t.spooled(), n, name)
	}
	t.proxy.setFaults(nil)
	for name := range pages {
		t.server.waitFlight(t.key+"-"+name, "has its receipt", waitTimeout, succeeded)
		t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-" + name })), "replayed")
		f := t.server.flight(t.key + "-" + name)
		require.Equal(t, uint32(1), f.Attempts, name)
		require.False(t, f.Overlap, name)
	}
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
	require.Len(t, t.charges(), len(pages))
}
