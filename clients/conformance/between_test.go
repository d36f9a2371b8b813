//go:build clients

package conformance

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// cannedAnswers are answers of load balancers, proxies and captive portals that do not come from flightd.
func pages() map[string]page {
	html := func(status int) page { return page{status, "text/html", "<html>not flightd</html>"} }
	return map[string]page{
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
func (p *page) turnsAway() bool { return p.status >= 300 && p.status < 500 && p.status != 408 }

// failUntil injects f into all requests to paths with the suffix, until over is called.
func (p *proxy) until(suffix string, f fault) (over func()) {
	p.always(func(path string) fault {
		if strings.HasSuffix(path, suffix) {
			return f
		}
		return fault{}
	})
	return func() { p.always(func(string) fault { return fault{} }) }
}

// middleboxScenarios are the scenarios in which a middlebox answers in flightd's place.
func between() (all []scenario) {
	for name, page := range pages() {
		all = append(all, scenario{"report-answered-by-" + name, func(t *trial) { reportTo(t, page) }})
		if page.turnsAway() {
			all = append(all, scenario{"rejected-by-" + name, func(t *trial) { turnedAwayBy(t, page) }})
		} else {
			all = append(all, scenario{"open-answered-by-" + name, func(t *trial) { openAnd(t, page) }})
		}
	}
	const rejection = `{"code":%q,"status":409,"retryable":false,"flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`
	fenced := page{409, "application/problem+json", fmt.Sprintf(rejection, "fenced")}
	inDoubt := page{409, "application/problem+json", fmt.Sprintf(rejection, "in_doubt")}
	// The answer to a renewal of an ended session.
	sessionEnded := page{410, "application/problem+json", `{"code":"lease_lost","status":410,"retryable":false}`}
	return append(all, scenario{"report-rejected", reportTurnedAway}, scenario{"answer-for-another-flight", answerOfAnother},
		scenario{"receipt-replaced", receiptOfAnother},
		scenario{"answer-for-another-caller", answerToAnother},
		scenario{"report-answered-by-rejection-of-another-flight", func(t *trial) { reportTo(t, fenced) }},
		scenario{"report-answered-by-end-of-session", func(t *trial) { reportTo(t, sessionEnded) }},
		scenario{"report-answered-as-an-open", reportToAnOpensAnswer},
		scenario{"open-answered-by-rejection-of-another-flight", func(t *trial) { openAnd(t, inDoubt) }})
}

// openAnsweredBy: flightd executes an open, but a middlebox answers it. The caller's time-out ends, and the client
// abandons the attempt. No effect was started, so the flight is not tainted.
func openAnd(t *trial, page page) {
	over := t.proxy.until(":open", fault{page: &page})
	a := t.driver(func(s *setup) { s.PatienceMS = 300 }).do(t.call())
	require.NotEmpty(t, a.Error+a.Detail)
	over()
	t.until("is abandoned", func(f wireFlight) bool { return f.State == "queued" && !f.Tainted })
	t.got(t.driver().do(t.call()), "executed")
	t.landed(2)
}

// rejectedBy: if the first server rejects the caller, or is not flightd, the client asks the next server.
func turnedAwayBy(t *trial, page page) {
	first := newProxy(t.T, t.house)
	first.always(func(string) fault { return fault{cut: true, page: &page} })
	d := t.driver(func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "executed")
	t.landed(1)
	require.NotEmpty(t, first.requests("/version"))
	require.Empty(t, t.spooled())
}

// reportRejected: if the first server rejects a report, the client sends it to the next server.
func reportTurnedAway(t *trial) {
	page := pages()["forbidden"]
	first := newProxy(t.T, t.house)
	first.until("/report", fault{cut: true, page: &page})
	over := t.proxy.until("/report", fault{cut: true})
	d := t.driver(reportWait(300), func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "unrecorded")
	over()
	t.until("has its receipt", succeeded)
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 0 })
}

// answerForAnotherFlight: an answer about another flight, mixed up by a middlebox, lets no caller act, because no
// attempt was opened for the caller's flight. The client repeats the request.
func answerOfAnother(t *trial) {
	const other = `{"decision":"proceed","flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa","key":"default/charge/another","generation":1,"attempt":1,
		"fencing_token":"none","idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`
	t.proxy.once(":open", fault{cut: true, page: &page{201, "application/json", other}})
	t.got(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.asked()[0].key)
	t.landed(1)
}

// receiptReplaced: the client accepts receipt bytes only if they match the digest, not a middlebox's answer.
func receiptOfAnother(t *trial) {
	for name, page := range pages() {
		if page.status != 200 {
			continue
		}
		t.proxy.once("/receipt", fault{cut: true, page: &page})
		a := t.driver().do(t.call())
		require.Empty(t, a.Error, a.Detail)
		require.Contains(t, string(a.Body), "ch_1", name)
	}
	t.landed(1)
}

// answerForAnotherCaller: the answer to another caller of the same flight lets no caller act, because the one open
// attempt belongs to the other caller. The client repeats the request.
func answerToAnother(t *trial) {
	id := flight.MustKey(t.key).FlightID()
	other := fmt.Sprintf(`{"decision":"proceed","nonce":"another","flight_id":%q,"key":%q,"generation":1,"attempt":1,"fencing_token":"none",
		"idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`, id, t.key)
	t.proxy.once(":open", fault{cut: true, page: &page{201, "application/json", other}})
	t.got(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.asked()[0].key)
	t.landed(1)
}

// reportAnsweredAsOpen: the answer to an open of the same flight is not accepted as the answer to its report.
func reportToAnOpensAnswer(t *trial) {
	const answer = `{"code":"expired","status":410,"retryable":false,"key":%q,"flight_id":%q}`
	reportTo(t, page{410, "application/problem+json", fmt.Sprintf(answer, t.key, flight.MustKey(t.key).FlightID())})
}

// reportAnsweredBy: only flightd itself can store or reject a report, and it never rejects one for missing credentials.
// After any other answer the report stays in the spool and is delivered later.
func reportTo(t *trial, page page) {
	over := t.proxy.until("/report", fault{cut: true, page: &page})
	d := t.driver(reportWait(300))
	t.got(d.do(t.call()), "unrecorded")
	require.Len(t, t.spooled(), 1)
	over()
	t.until("has its receipt", succeeded)
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 0 })
	t.got(d.do(t.call()), "replayed")
	t.landed(1)
}
