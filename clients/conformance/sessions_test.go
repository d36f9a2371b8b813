//go:build clients

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// sessionScenarios are the scenarios about the one session of a client.
func sessionScenarios() []scenario {
	return []scenario{{"one-session", oneSession}, {"lost-session-is-replaced", lostSessionIsReplaced}, {"ended-session-is-replaced", endedSessionIsReplaced}}
}

// renewal renews a session as its owner would that knows of no attempt, and returns the status and the answer.
func (t *trial) renewal(session string) (status int, a wire.SessionAnswer) {
	t.Helper()
	answer, err := t.server.request(http.MethodPost, "/v1/sessions/"+session+"/renew", `{"open_digest":"`+wire.OpenDigest(nil)+`"}`)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&a))
	return answer.StatusCode, a
}

// sessions returns the sessions that opens have named, in order, each once.
func (t *trial) sessions() (ids []string) {
	t.Helper()
	seen := map[string]bool{"": true}
	for _, r := range t.proxy.requests(":open") {
		var sent wire.OpenRequest
		require.NoError(t, json.Unmarshal([]byte(r.body), &sent))
		if !seen[sent.Session] {
			seen[sent.Session] = true
			ids = append(ids, sent.Session)
		}
	}
	return ids
}

// beginMany begins calls of different keys, and returns when all their effects run.
func (t *trial) beginMany(d *driver, name string, n int) (running []*pending) {
	t.Helper()
	t.provider.block("/effect")
	before := len(t.providerRequests())
	for i := range n {
		running = append(running, d.begin(t.call(func(c *call) { c.ID += fmt.Sprintf("-%s-%d", name, i) })))
	}
	eventually(t, "all effects run", waitTimeout, func() bool { return len(t.providerRequests()) == before+n })
	return running
}

// oneSession: the attempts of a process are open under one session, which one renewal at a time prolongs, and which the end of
// the process closes. A process that has acted once has none.
func oneSession(t *trial) {
	const n = 20
	d := t.driver(ttl(15))
	t.requireAnswer(d.do(t.call()), "executed")
	require.Empty(t, t.proxy.requests("/v1/sessions"), "the server has made a session for the first call")
	running := t.beginMany(d, "many", n)
	require.Len(t, t.sessions(), 1)
	require.Len(t, t.proxy.requests("/v1/sessions"), 1)
	session := t.sessions()[0]
	status, listed := t.renewal(session)
	require.Equal(t, http.StatusOK, status)
	require.Len(t, listed.Open, n, "the server has all attempts under one session")
	before := len(t.proxy.requests("/renew"))
	started := time.Now()
	eventually(t, "it is renewed", waitTimeout, func() bool { return len(t.proxy.requests("/renew")) >= before+3 })
	require.Less(t, len(t.proxy.requests("/renew"))-before, 6+int(time.Since(started)/time.Second), "one renewal for all")
	t.provider.unblock("/effect")
	for _, p := range running {
		t.requireAnswer(p.waitOne(), "executed")
	}
	require.NoError(t, d.in.Close())
	eventually(t, "the end of the process closes it", waitTimeout, func() bool { status, _ := t.renewal(session); return status == http.StatusGone })
}

// endedSessionIsReplaced: the server has ended the session of a process, which does not know it yet. A call that waits for nobody acts under a
// new session.
func endedSessionIsReplaced(t *trial) {
	d := t.driver(ttl(30))
	for i := range 2 {
		t.requireAnswer(d.do(t.call(func(c *call) { c.ID += fmt.Sprint("-", i) })), "executed")
	}
	require.Len(t, t.sessions(), 1)
	answer, err := t.server.request(http.MethodPost, "/v1/sessions/"+t.sessions()[0]+"/close", "{}")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	t.requireAnswer(d.do(t.call(waitMS(1))), "executed")
	require.Len(t, t.sessions(), 2)
}

// lostSessionIsReplaced: the session of a process ends while it runs effects and while its renewals do not arrive. Their reports
// end their doubts, and the next calls act under a new session.
func lostSessionIsReplaced(t *trial) {
	d := t.driver(ttl(int(shortTTL / time.Second)))
	t.requireAnswer(d.do(t.call()), "executed")
	running := t.beginMany(d, "before", 2)
	over := t.proxy.failUntil("/renew", fault{cut: true})
	for i := range running {
		t.server.waitFlight(fmt.Sprintf("%s-before-%d", t.key, i), "is in doubt", waitTimeout, inDoubt)
	}
	over()
	t.provider.unblock("/effect")
	for _, p := range running {
		t.requireAnswer(p.waitOne(), "executed")
	}
	running = t.beginMany(d, "after", 2)
	ids := t.sessions()
	require.NotEqual(t, ids[0], ids[len(ids)-1])
	t.provider.unblock("/effect")
	for _, p := range running {
		t.requireAnswer(p.waitOne(), "executed")
	}
	require.Len(t, t.providerRequests(), 5, strings.Join(ids, " "))
}
