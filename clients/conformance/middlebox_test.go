//go:build clients

package conformance

import (
	"fmt"
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

// middleboxScenarios are the scenarios in which a middlebox answers in flightd's place.
func middleboxScenarios() (all []scenario) {
	for name, page := range cannedAnswers() {
		all = append(all, scenario{"report-answered-by-" + name, func(t *trial) { reportAnsweredBy(t, page) }})
		if page.rejects() {
			all = append(all, scenario{"rejected-by-" + name, func(t *trial) { rejectedBy(t, page) }})
		} else {
			all = append(all, scenario{"open-answered-by-" + name, func(t *trial) { openAnsweredBy(t, page) }})
		}
	}
	const rejection = `{"code":%q,"status":409,"retryable":false,"flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`
	fenced := cannedAnswer{409, "application/problem+json", fmt.Sprintf(rejection, "fenced")}
	inDoubt := cannedAnswer{409, "application/problem+json", fmt.Sprintf(rejection, "in_doubt")}
	// The answer to a renewal of an ended session.
	sessionEnded := cannedAnswer{410, "application/problem+json", `{"code":"lease_lost","status":410,"retryable":false}`}
	return append(all, scenario{"report-rejected", reportRejected}, scenario{"answer-for-another-flight", answerForAnotherFlight},
		scenario{"receipt-replaced", receiptReplaced},
		scenario{"answer-for-another-caller", answerForAnotherCaller},
		scenario{"report-answered-by-rejection-of-another-flight", func(t *trial) { reportAnsweredBy(t, fenced) }},
		scenario{"report-answered-by-end-of-session", func(t *trial) { reportAnsweredBy(t, sessionEnded) }},
		scenario{"report-answered-as-an-open", reportAnsweredAsOpen},
		scenario{"open-answered-by-rejection-of-another-flight", func(t *trial) { openAnsweredBy(t, inDoubt) }})
}

// openAnsweredBy: flightd executes an open, but a middlebox answers it. The caller's time-out ends, and the client
// abandons the attempt. No effect was started, so the flight is not tainted.
func openAnsweredBy(t *trial, page cannedAnswer) {
	over := t.proxy.failUntil(":open", fault{canned: &page})
	a := t.driver(func(s *setup) { s.RetryTimeoutMS = 300 }).do(t.call())
	require.NotEmpty(t, a.Error+a.Detail)
	over()
	t.waitFlight("is abandoned", func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireOneEffect(2)
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

// reportAnsweredAsOpen: the answer to an open of the same flight is not accepted as the answer to its report.
func reportAnsweredAsOpen(t *trial) {
	const answer = `{"code":"expired","status":410,"retryable":false,"key":%q,"flight_id":%q}`
	reportAnsweredBy(t, cannedAnswer{410, "application/problem+json", fmt.Sprintf(answer, t.key, flight.MustKey(t.key).FlightID())})
}

// reportAnsweredBy: only flightd itself can store or reject a report, and it never rejects one for missing credentials.
// After any other answer the report stays in the spool and is delivered later.
func reportAnsweredBy(t *trial, page cannedAnswer) {
	over := t.proxy.failUntil("/report", fault{cut: true, canned: &page})
	d := t.driver(reportWait(300))
	t.requireAnswer(d.do(t.call()), "unrecorded")
	require.Len(t, t.spooled(), 1)
	over()
	t.waitFlight("has its receipt", succeeded)
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireOneEffect(1)
}
