//go:build clients

package conformance

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// pages are what load balancers, proxies and captive portals answer in flightd's place.
func pages() map[string]page {
	html := func(status int) page { return page{status, "text/html", "<html>not flightd</html>"} }
	return map[string]page{
		"bad-gateway": html(502), "timed-out": html(408), "not-found": html(404), "moved": html(302), "welcome": html(200),
		"a-number-as-code":   {503, "application/json", `{"code":503,"message":"no healthy upstream"}`},
		"a-word-as-code":     {403, "application/json", `{"code":"forbidden","message":"by the wall"}`},
		"nothing":            {200, "application/json", ""},
		"half":               {200, "application/json", `{"id":"fl_x","state":"succ`},
		"a-state-of-its-own": {200, "application/json", `{"id":"1","state":"maintenance"}`},
		"maintenance":        {200, "application/json", `{"status":"maintenance"}`},
		"a-list":             {502, "application/json", `[1]`},
		"not-let-in":         {403, "application/problem+json", `{"code":"forbidden","status":403,"retryable":false}`}, // flightd's own word
		"who-are-you":        {401, "application/problem+json", `{"code":"unauthenticated","status":401,"retryable":false}`},
		"a-problem-document": {500, "application/problem+json", `{"type":"about:blank","title":"no","status":500}`},
	}
}

// turnsAway reports whether whoever answers so has carried nothing out, and let nobody else do it.
func (p *page) turnsAway() bool { return p.status >= 300 && p.status < 500 && p.status != 408 }

// until lets all requests to paths that end so meet a fault until over is called.
func (p *proxy) until(suffix string, f fault) (over func()) {
	p.always(func(path string) fault {
		if strings.HasSuffix(path, suffix) {
			return f
		}
		return fault{}
	})
	return func() { p.always(func(string) fault { return fault{} }) }
}

// between are the scenarios with something between that answers in flightd's place.
func between() (all []scenario) {
	for name, page := range pages() {
		all = append(all, scenario{"report-to-" + name, func(t *trial) { reportTo(t, page) }})
		if page.turnsAway() {
			all = append(all, scenario{"turned-away-by-" + name, func(t *trial) { turnedAwayBy(t, page) }})
		} else {
			all = append(all, scenario{"open-and-" + name, func(t *trial) { openAnd(t, page) }})
		}
	}
	const refusal = `{"code":%q,"status":409,"retryable":false,"flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa"}`
	fenced := page{409, "application/problem+json", fmt.Sprintf(refusal, "fenced")}
	inDoubt := page{409, "application/problem+json", fmt.Sprintf(refusal, "in_doubt")}
	sessionEnded := page{410, "application/problem+json", `{"code":"lease_lost","status":410,"retryable":false}`} // of a renewal
	return append(all, scenario{"report-turned-away", reportTurnedAway}, scenario{"answer-of-another", answerOfAnother},
		scenario{"receipt-of-another", receiptOfAnother},
		scenario{"answer-to-another", answerToAnother},
		scenario{"report-to-a-refusal-of-another", func(t *trial) { reportTo(t, fenced) }},
		scenario{"report-to-the-end-of-a-session", func(t *trial) { reportTo(t, sessionEnded) }},
		scenario{"report-to-the-answer-of-an-open", reportToAnOpensAnswer},
		scenario{"open-and-a-refusal-of-another", func(t *trial) { openAnd(t, inDoubt) }})
}

// Something between gives up on an open that is carried out. The caller gives up, too, and what was opened is given
// back: nothing was sent, and no doubt stays behind.
func openAnd(t *trial, page page) {
	over := t.proxy.until(":open", fault{page: &page})
	a := t.driver(func(s *setup) { s.PatienceMS = 300 }).do(t.call())
	require.NotEmpty(t, a.Error+a.Detail)
	over()
	t.until("is given back", func(f wireFlight) bool { return f.State == "queued" && !f.Tainted })
	t.got(t.driver().do(t.call()), "executed")
	t.landed(2)
}

// Where the first server turns callers away, be it none of flightd's or one that does not let them in, the next one is asked.
func turnedAwayBy(t *trial, page page) {
	first := newProxy(t.T, t.house)
	first.always(func(string) fault { return fault{cut: true, page: &page} })
	d := t.driver(func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "executed")
	t.landed(1)
	require.NotEmpty(t, first.requests("/version"))
	require.Empty(t, t.spooled())
}

// So are later servers with a report that the first one does not take.
func reportTurnedAway(t *trial) {
	page := pages()["not-let-in"]
	first := newProxy(t.T, t.house)
	first.until("/report", fault{cut: true, page: &page})
	over := t.proxy.until("/report", fault{cut: true})
	d := t.driver(reportWait(300), func(s *setup) { s.Address = first.url + "," + t.proxy.url })
	t.got(d.do(t.call()), "unrecorded")
	over()
	t.until("has its receipt", succeeded)
	eventually(t, "the spool is empty", patience, func() bool { return len(t.spooled()) == 0 })
}

// An answer about another flight lets nobody act, whoever has mixed it up on the way: there is no attempt for what would be
// done. The request is repeated.
func answerOfAnother(t *trial) {
	const other = `{"decision":"proceed","flight_id":"fl_aaaaaaaaaaaaaaaaaaaaaaaaaa","key":"default/charge/another","generation":1,"attempt":1,
		"fencing_token":"none","idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`
	t.proxy.once(":open", fault{cut: true, page: &page{201, "application/json", other}})
	t.got(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.asked()[0].key)
	t.landed(1)
}

// The bytes of a receipt are those that its digest vouches for, whatever something between answers in their place.
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

// An answer that another caller of the same flight was given lets nobody act: there is one attempt, and that is the other one's.
// The request is repeated.
func answerToAnother(t *trial) {
	id := flight.MustKey(t.key).FlightID()
	other := fmt.Sprintf(`{"decision":"proceed","nonce":"another","flight_id":%q,"key":%q,"generation":1,"attempt":1,"fencing_token":"none",
		"idempotency_key":"another","session":"ses_x","trust_ms":60000,"renew_every_ms":20000}`, id, t.key)
	t.proxy.once(":open", fault{cut: true, page: &page{201, "application/json", other}})
	t.got(t.driver().do(t.call()), "executed")
	require.NotEqual(t, "another", t.asked()[0].key)
	t.landed(1)
}

// An answer to an open of the same flight is none to its report.
func reportToAnOpensAnswer(t *trial) {
	const answer = `{"code":"expired","status":410,"retryable":false,"key":%q,"flight_id":%q}`
	reportTo(t, page{410, "application/problem+json", fmt.Sprintf(answer, t.key, flight.MustKey(t.key).FlightID())})
}

// Only flightd itself can take a report, or refuse it, and it refuses none because it does not know who is there. Whatever
// else answers: the report stays, and is delivered.
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
