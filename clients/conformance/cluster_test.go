//go:build clients

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// clusterScenarios are the scenarios in which the addresses of a client are those of a cluster's nodes.
func clusterScenarios() []scenario {
	all := []scenario{{"leader-is-preferred", leaderIsPreferred}, {"leader-without-an-answer", leaderWithoutAnAnswer},
		{"greatest-index-is-sent", greatestIndexIsSent}, {"ledger-time-behind", ledgerTimeBehind}, {"ledger-time-ahead", ledgerTimeAhead}}
	for _, code := range []string{"no_leader", "leader_lost", "draining", "ledger_behind"} {
		all = append(all, scenario{"next-server-after-" + code, func(t *trial) { nextServerAfter(t, code) }})
	}
	return all
}

// cluster is a flightd that looks like several nodes: proxies that name themselves and a leader.
type cluster struct {
	nodes  []*proxy
	leader atomic.Pointer[string]
}

// newCluster returns a cluster of nodes with those names, and the address of all.
func (t *trial) newCluster(leader string, names ...string) (c *cluster, address string) {
	t.Helper()
	c = new(cluster)
	c.leader.Store(&leader)
	var urls []string
	for _, name := range names {
		p := newProxy(t.T, t.server)
		p.setRewrite(func(answer http.Header) {
			answer.Set(wire.HeaderNode, name)
			answer.Set(wire.HeaderLeader, *c.leader.Load())
		})
		c.nodes, urls = append(c.nodes, p), append(urls, p.url)
	}
	return c, strings.Join(urls, ",")
}

// others returns the number of requests that other nodes than this one have got.
func (c *cluster) others(node int) (n int) {
	for i, p := range c.nodes {
		if i != node {
			n += len(p.requests(""))
		}
	}
	return n
}

// leaderIsPreferred: a client finds the address of the leader, and sends all requests there, also after another node has
// become the leader.
func leaderIsPreferred(t *trial) {
	c, address := t.newCluster("c", "a", "b", "c")
	d := t.driver(func(s *setup) { s.Address = address })
	t.requireAnswer(d.do(t.call()), "executed")
	for _, leader := range []int{2, 1} {
		c.leader.Store(&[]string{"a", "b", "c"}[leader])
		replay := func() bool {
			before := c.others(leader)
			t.requireAnswer(d.do(t.call()), "replayed")
			return c.others(leader) == before
		}
		eventually(t, "the leader gets all requests", waitTimeout, replay)
		for range 5 {
			require.True(t, replay(), "the leader stays preferred")
		}
	}
	t.requireOneEffect(1)
}

// leaderWithoutAnAnswer: the leader cannot be reached by the client. One request a second, and after failures fewer, tries
// its address, and the other nodes answer.
func leaderWithoutAnAnswer(t *trial) {
	c, address := t.newCluster("b", "a", "b")
	c.nodes[1].setFaults(func(string) fault { return fault{cut: true} })
	d := t.driver(func(s *setup) { s.Address = address })
	t.requireAnswer(d.do(t.call()), "executed")
	started := time.Now()
	for time.Since(started) < 3*time.Second {
		for _, a := range d.begin(t.call(func(c *call) { c.Callers = 4 })).wait() {
			t.requireAnswer(a, "replayed")
		}
	}
	tried := len(c.nodes[1].requests(""))
	require.GreaterOrEqual(t, tried, 2)
	require.LessOrEqual(t, tried, 2+int(time.Since(started)/time.Second))
	require.False(t, t.requireOneEffect(1).Tainted)
	require.Empty(t, t.spooled())
}

// nextServerAfter: a code that is about one node is met at the next address at once, under the same nonce, whatever
// Retry-After says.
func nextServerAfter(t *trial, code string) {
	c, address := t.newCluster("a", "a", "b")
	page := cannedAnswer{503, "application/problem+json", fmt.Sprintf(`{"code":%q,"status":503,"retryable":true,"retry_after_ms":5000}`, code)}
	// The request of a leader that was lost may have been executed.
	c.nodes[0].failUntil(":open", fault{cut: code != "leader_lost", own: true, canned: &page})
	d := t.driver(func(s *setup) { s.Address = address })
	t.requireAnswer(d.do(t.call()), "executed")
	require.False(t, t.requireOneEffect(1).Tainted)
	open := func(p *proxy) (first request, nonce string) {
		var sent wire.OpenRequest
		require.NotEmpty(t, p.requests(":open"))
		first = p.requests(":open")[0]
		require.NoError(t, json.Unmarshal([]byte(first.body), &sent))
		return first, sent.Nonce
	}
	rejected, nonce := open(c.nodes[0])
	taken, again := open(c.nodes[1])
	require.Equal(t, nonce, again)
	require.Less(t, taken.at.Sub(rejected.at), 4*time.Second, "there is no pause")
	require.Empty(t, t.spooled())
}

// greatestIndexIsSent: each request names the greatest index of the ledger that the client was told, at every node. The
// index of another deployment does not count.
func greatestIndexIsSent(t *trial) {
	c, address := t.newCluster("", "a", "b")
	name := func(node int, index string) {
		c.nodes[node].setRewrite(func(answer http.Header) {
			answer.Set(wire.HeaderIndex, index)
			answer.Del(wire.HeaderLeader) // of a real cluster: the client would look for it
		})
	}
	sent := func(node int, suffix string) string { // a request in the background may arrive late
		all := c.nodes[node].requests(suffix)
		require.NotEmpty(t, all)
		return all[len(all)-1].header.Get(wire.HeaderIndex)
	}
	name(0, "1-7")
	name(1, "1-5")
	d := t.driver(func(s *setup) { s.Address = address })
	require.Empty(t, c.nodes[0].requests(""))
	t.requireAnswer(d.do(t.call()), "executed")
	require.Empty(t, c.nodes[0].requests("/version")[0].header.Get(wire.HeaderIndex), "none was named yet")
	require.Equal(t, "1-7", sent(0, "/report"))

	name(0, "1-9999")
	stranger := cannedAnswer{421, "application/problem+json", `{"code":"wrong_deployment","status":421,"retryable":false}`}
	c.nodes[0].setFaults(func(string) fault { return fault{cut: true, own: true, canned: &stranger} })
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireAnswer(d.do(t.call()), "replayed")
	require.Equal(t, "1-7", sent(1, ":open"))
	name(1, "1-12")
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireAnswer(d.do(t.call()), "replayed")
	require.Equal(t, "1-12", sent(1, ":open"))
	name(1, "2-3") // the ledger was restored
	t.requireAnswer(d.do(t.call()), "replayed")
	t.requireAnswer(d.do(t.call()), "replayed")
	require.Equal(t, "2-3", sent(1, ":open"))
}

// shiftTime lets the proxy's answers name another time of the ledger.
func (t *trial) shiftTime(by time.Duration) {
	t.proxy.setRewrite(func(answer http.Header) {
		if ms, err := strconv.ParseInt(answer.Get(wire.HeaderLedgerTime), 10, 64); err == nil {
			answer.Set(wire.HeaderLedgerTime, strconv.FormatInt(ms+by.Milliseconds(), 10))
		}
	})
}

// otherKey returns a call for another key.
func (t *trial) otherKey(suffix string) call {
	return t.call(func(c *call) { c.ID += suffix })
}

// ledgerTimeBehind: an answer whose ledger time is behind does not set the client's estimate back. An open with a not_after
// of that time would be rejected.
func ledgerTimeBehind(t *trial) {
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "executed")
	t.shiftTime(-time.Hour)
	t.requireAnswer(d.do(t.otherKey("-second")), "executed")
	before := len(t.proxy.requests(":open"))
	t.requireAnswer(d.do(t.otherKey("-third")), "executed")
	opens := t.proxy.requests(":open")
	require.Len(t, opens, before+1, "it is not rejected")
	var earlier, last wire.OpenRequest
	require.NoError(t, json.Unmarshal([]byte(opens[before-1].body), &earlier))
	require.NoError(t, json.Unmarshal([]byte(opens[before].body), &last))
	require.GreaterOrEqual(t, last.NotAfter, earlier.NotAfter)
}

// ledgerTimeAhead: a client whose estimate is ahead of the ledger's time opens again, after one rejection.
func ledgerTimeAhead(t *trial) {
	d := t.driver()
	t.requireAnswer(d.do(t.call()), "executed")
	t.shiftTime(10 * time.Minute)
	t.requireAnswer(d.do(t.otherKey("-ahead")), "executed") // by the leader: a follower that replays a receipt names no time
	t.shiftTime(0)
	before := len(t.proxy.requests(":open"))
	t.requireAnswer(d.do(t.otherKey("-second")), "executed")
	require.Len(t, t.proxy.requests(":open"), before+2, "the first one is rejected, and its answer has the right time")
	before = len(t.proxy.requests(":open"))
	t.requireAnswer(d.do(t.otherKey("-third")), "executed")
	require.Len(t, t.proxy.requests(":open"), before+1)
}
