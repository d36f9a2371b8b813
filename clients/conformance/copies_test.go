//go:build clients

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// copiesScenarios are the scenarios in which the network copies requests and swaps answers.
func copiesScenarios() []scenario {
	return []scenario{{"late-copy-of-an-open", lateCopyOfAnOpen}, {"late-copy-after-not-after", lateCopyAfterNotAfter},
		{"late-copy-after-exit", lateCopyAfterExit}, {"swapped-rejections", swappedRejections},
		{"report-answered-by-a-read", reportAnsweredByARead}, {"abandon-answered-by-a-close", abandonAnsweredByAClose},
		{"end-of-another-session", endOfAnotherSession}, {"hot-key", hotKey}}
}

// leaveBusy lets a caller leave with busy, then ends the attempt of the other caller, so that the key is free. It returns
// the client that has left, and the body of its open.
func (t *trial) leaveBusy() (left *driver, open string) {
	t.Helper()
	t.provider.configure(func(p *provider) { p.status = []int{http.StatusTooManyRequests} })
	t.provider.block("/effect")
	holder := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	before := len(t.proxy.requests(":open"))
	left = t.driver(ttl(600)) // its session outlives the test
	t.requireAnswer(left.do(t.call(waitMS(1))), "idempotency_in_flight")
	opens := t.proxy.requests(":open")
	require.Len(t, opens, before+1)
	t.provider.unblock("/effect")
	t.Cleanup(func() { t.requireAnswer(holder.waitOne(), "not_done") }) // a copy that comes is not to wait for it
	t.waitFlight("is free", func(f wireFlight) bool { return f.State == "ready" })
	return left, opens[before].body
}

// arrive lets a copy of an open arrive at the server, and returns the status of its answer, which nobody gets.
func (t *trial) arrive(open string) int {
	t.Helper()
	answer, err := t.server.request(http.MethodPost, "/v1/flights:open", open)
	require.NoError(t, err)
	defer answer.Body.Close()
	return answer.StatusCode
}

// lateCopyOfAnOpen: a copy of an open arrives after its caller was answered busy and has left. The attempt that it opens for
// nobody is abandoned, long before its session ends, and leaves no doubt.
func lateCopyOfAnOpen(t *trial) {
	_, open := t.leaveBusy()
	for begun := time.Now(); t.arrive(open) == http.StatusConflict; _, open = t.leaveBusy() { // a slow machine: not_after has passed
		require.Less(t, time.Since(begun), waitTimeout)
		t.id, t.key = t.id+"-again", t.key+"-again"
	}
	t.waitFlight("is abandoned", func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
	ownAbandons := 0
	for _, r := range t.proxy.requests(":abandon") {
		if strings.Contains(r.body, `"`+t.id+`"`) {
			ownAbandons++
		}
	}
	require.Equal(t, 1, ownAbandons)
	t.requireAnswer(t.driver().do(t.call()), "executed")
	t.requireOneEffect(3)
}

// lateCopyAfterNotAfter: an open can open an attempt for two seconds longer than its caller waits, and no longer.
func lateCopyAfterNotAfter(t *trial) {
	_, open := t.leaveBusy()
	var sent wire.OpenRequest
	require.NoError(t, json.Unmarshal([]byte(open), &sent))
	var version wire.Version
	eventually(t, "the ledger's time is past not_after", waitTimeout, func() bool {
		answer, err := t.server.request(http.MethodGet, "/version", "")
		require.NoError(t, err)
		defer answer.Body.Close()
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&version))
		return version.LedgerTime > sent.NotAfter
	})
	require.Equal(t, http.StatusConflict, t.arrive(open))
	require.Equal(t, "ready", t.flight().State)
}

// lateCopyAfterExit: the caller's process ends right after busy. It abandons the open before, so that a late copy opens nothing.
func lateCopyAfterExit(t *trial) {
	left, open := t.leaveBusy()
	require.NoError(t, left.in.Close())
	eventually(t, "the process ends, and abandons what it has left", waitTimeout, func() bool { return len(t.proxy.requests(":abandon")) > 0 })
	eventually(t, "the abandon is recorded", waitTimeout, func() bool { return t.arrive(open) == http.StatusConflict })
	t.waitFlight("is not in doubt", func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
}

// swappedRejections: a caller gets the rejection of another caller's open of the same flight, while its own open was
// executed. It must not leave its attempt.
func swappedRejections(t *trial) {
	codes := []string{"idempotency_in_flight", "in_doubt", "open_expired", "expired", "idempotency_conflict"}
	d := t.driver()
	for _, code := range codes {
		key := t.key + "-" + code
		rejection := fmt.Sprintf(`{"code":%q,"status":409,"retryable":false,"proposed":%t,"nonce":"another","key":%q,"flight_id":%q}`,
			code, code == "in_doubt", key, flight.MustKey(key).FlightID())
		t.proxy.failOnce(":open", fault{canned: &cannedAnswer{http.StatusConflict, "application/problem+json", rejection}})
		t.requireAnswer(d.do(t.call(func(c *call) { c.ID += "-" + code })), "executed")
		require.Equal(t, uint32(1), t.server.flight(key).Attempts, code)
	}
	require.Len(t, t.charges(), len(codes))
}

// reportAnsweredByARead: a report is lost, and an earlier read of the flight is returned as its answer. The report is sent
// again, and the caller is not told to call again.
func reportAnsweredByARead(t *trial) {
	t.provider.block("/effect")
	running := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	answer, err := t.server.request(http.MethodGet, "/v1/flights/"+flight.MustKey(t.key).FlightID().String(), "")
	require.NoError(t, err)
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(read), `"running"`)
	t.proxy.failOnce("/report", fault{cut: true, canned: &cannedAnswer{http.StatusOK, "application/json", string(read)}})
	t.provider.unblock("/effect")
	t.requireAnswer(running.waitOne(), "executed")
	require.GreaterOrEqual(t, len(t.proxy.requests("/report")), 2)
	t.requireOneEffect(1)
}

// abandonAnsweredByAClose: the answer that closes a session is not that to an abandon, which is sent again.
func abandonAnsweredByAClose(t *trial) {
	opened, swaps := false, 0
	t.proxy.setFaults(func(path string) fault {
		switch {
		case path == "/v1/flights:open" && !opened:
			opened = true
			return fault{drop: true}
		case path == "/v1/flights:open":
			return fault{cut: true}
		case path == "/v1/flights:abandon" && swaps < 2:
			swaps++
			return fault{cut: true, canned: &cannedAnswer{http.StatusOK, "application/json", "{}"}}
		}
		return fault{}
	})
	t.requireAnswer(t.driver(func(s *setup) { s.RetryTimeoutMS = 300 }).do(t.call(waitMS(1))), "unavailable")
	t.waitFlight("is abandoned", func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
}

// endOfAnotherSession: during an effect, a renewal is answered as that of another session, which has ended. The session of the
// effect is renewed nevertheless, and no other caller is told of a doubt.
func endOfAnotherSession(t *trial) {
	const ended = `{"code":"lease_lost","status":410,"retryable":false,"session":"ses_other"}`
	t.provider.block("/effect")
	p := t.driver(ttl(int(3 * shortTTL / time.Second))).begin(t.call())
	t.provider.waitArrived(t, "/effect")
	t.proxy.failOnce("/renew", fault{cut: true, canned: &cannedAnswer{http.StatusGone, "application/problem+json", ended}})
	eventually(t, "three renewals", waitTimeout, func() bool { return len(t.proxy.requests("/renew")) >= 4 })
	t.requireAnswer(t.driver().do(t.call(waitMS(200))), "idempotency_in_flight")
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "executed")
	t.requireOneEffect(1)
}

// hotKey: three hundred callers ask for one key without waiting, and leave. As soon as the key is free, the next caller acts:
// the abandons of the others use up none of the nonces that the ledger remembers for the key.
func hotKey(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{http.StatusTooManyRequests} })
	t.provider.block("/effect")
	holder := t.driver().begin(t.call())
	t.provider.waitArrived(t, "/effect")
	d, started := t.driver(), time.Now()
	for range 2 {
		for _, a := range d.begin(t.call(waitMS(1), func(c *call) { c.Callers = 300 })).wait() {
			t.requireAnswer(a, "idempotency_in_flight")
		}
	}
	t.provider.unblock("/effect")
	t.requireAnswer(holder.waitOne(), "not_done")
	before := len(t.proxy.requests(":open"))
	t.requireAnswer(t.driver().do(t.call(waitMS(1))), "executed")
	require.Len(t, t.proxy.requests(":open"), before+1, "a client repeats an open that is answered too_many_open")
	nonces := map[string]bool{}
	for i := range before + 1 {
		nonces[nonceOf(t, i)] = true
	}
	repeated := before + 1 - len(nonces) // on a busy machine some opens are not answered in time, and each of them is abandoned
	require.LessOrEqual(t, len(t.proxy.requests(":abandon")), 2+int(time.Since(started)/time.Second)+repeated, "one per key and second")
	t.requireOneEffect(2)
}
