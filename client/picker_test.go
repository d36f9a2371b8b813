package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

func TestTryOrder(t *testing.T) {
	for name, row := range map[string]struct {
		preferred int
		nodes     string // separated by spaces; -: not known
		leader    string
		probe     int
		want      []int
	}{
		"lone servers, in turn":         {1, "- - -", "", -1, []int{1, 2, 0}},
		"the leader":                    {0, "a b c", "c", -1, []int{2, 0, 1}},
		"a leader that is no server":    {1, "a b c", "d", -1, []int{1, 2, 0}},
		"a server that failed is last":  {1, "a - c", "c", -1, []int{2, 0, 1}},
		"no leader, known nodes first":  {1, "a - c", "", -1, []int{2, 0, 1}},
		"a probe":                       {0, "a - -", "c", 1, []int{1, 0, 2}},
		"two addresses of the leader":   {2, "a c c", "c", -1, []int{2, 1, 0}},
		"only the name of the leader":   {2, "- - -", "c", -1, []int{2, 0, 1}},
		"a probe comes before the rest": {0, "a b -", "c", 2, []int{2, 0, 1}},
	} {
		nodes := strings.Fields(row.nodes)
		for i := range nodes {
			nodes[i] = strings.TrimPrefix(nodes[i], "-")
		}
		require.Equal(t, row.want, tryOrder(row.preferred, nodes, row.leader, row.probe), name)
	}
}

// Each order has every server once, whatever is known.
func TestTryOrderIsAPermutation(t *testing.T) {
	names := []string{"", "a", "b"}
	for code := range 27 * 3 * 3 * 4 {
		nodes := []string{names[code%3], names[code/3%3], names[code/9%3]}
		order := tryOrder(code/27%3, nodes, names[code/81%3], code/243-1)
		require.ElementsMatch(t, []int{0, 1, 2}, order, "%d", code)
	}
}

// pickFirst returns the first server of the order, and whether that is a probe.
func pickFirst(p *picker, n int) (server int, probes bool) {
	order, probe := p.pick(n, true)
	return order[0], order[0] == probe
}

func clusterHeader(node, leader string) http.Header {
	h := make(http.Header)
	h.Set(wire.HeaderNode, node)
	h.Set(wire.HeaderLeader, leader)
	return h
}

// A client asks the servers that it does not know, one request a second, until it has found the leader.
func TestPickerFindsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p picker
		pick := func(want int, probes bool) {
			t.Helper()
			server, isProbe := pickFirst(&p, 3)
			require.Equal(t, want, server)
			require.Equal(t, probes, isProbe)
		}
		pick(0, false)
		p.answered(0, -1, clusterHeader("a", "c"))
		order, probe := p.pick(3, false)
		require.Equal(t, []int{0, 1, 2}, order, "this request must not probe")
		require.Equal(t, -1, probe)
		pick(1, true)
		time.Sleep(time.Minute)
		pick(0, false) // the probe is in flight
		p.answered(1, 1, clusterHeader("b", "c"))
		pick(0, false)
		time.Sleep(time.Second)
		pick(2, true)
		p.answered(2, 2, clusterHeader("c", "c"))
		pick(2, false)

		p.answered(2, -1, clusterHeader("c", "b")) // b leads now
		pick(1, false)
		p.failed(1, -1) // b is away, and c still names it
		pick(2, false)
		p.answered(2, -1, clusterHeader("c", "b"))
		pick(2, false)
		time.Sleep(time.Second)
		pick(1, true)
		p.failed(1, 1)
		pick(2, false)
		time.Sleep(time.Second)
		pick(1, true)
		p.failed(1, 1)
		time.Sleep(time.Second)
		pick(2, false) // the pause doubles
		time.Sleep(time.Second)
		pick(1, true)
		p.answered(1, 1, clusterHeader("b", "b"))
		pick(1, false)
	})
}

// Without names of nodes, the servers are preferred in turn.
func TestPickerOfLoneServers(t *testing.T) {
	var p picker
	for i := range 5 {
		server, probes := pickFirst(&p, 2)
		require.False(t, probes)
		require.Equal(t, i%2, server)
		p.answered(server, -1, http.Header{})
		again, _ := pickFirst(&p, 2)
		require.Equal(t, server, again)
		p.failed(server, -1)
		p.failed(server, -1) // another request at the same server
	}
}

// clusterNode is a scripted server of a cluster.
type clusterNode struct {
	*httptest.Server
	mu     sync.Mutex // guards the fields below
	header http.Header
	status int
	body   string
	seen   []http.Header
}

func newClusterNode(t *testing.T, node, leader string) *clusterNode {
	n := &clusterNode{header: clusterHeader(node, leader), status: http.StatusOK, body: `{"version":"x","events":[]}`}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.seen = append(n.seen, r.Header)
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		for name, values := range n.header {
			w.Header()[name] = values
		}
		w.WriteHeader(n.status)
		_, _ = w.Write([]byte(n.body))
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *clusterNode) set(change func(n *clusterNode)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// reject lets the node answer with a problem.
func (n *clusterNode) reject(status int, code wire.Code, retryable bool) {
	n.set(func(n *clusterNode) {
		n.status, n.body = status, fmt.Sprintf(`{"code":%q,"retryable":%t,"retry_after_ms":1}`, code, retryable)
	})
}

func (n *clusterNode) requests() []http.Header {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

func newClusterClient(t *testing.T, nodes ...*clusterNode) *Client {
	c := newUnconnectedClient(t, nodes[0].Listener, WithRetryTimeout(time.Minute))
	for _, n := range nodes[1:] {
		c.servers = append(c.servers, n.URL)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// A client sends the greatest index that it was told. An answer that rejects the request unread may come from another
// deployment, and tells none.
func TestGreatestIndexIsSent(t *testing.T) {
	first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
	c := newClusterClient(t, first, second)
	sent := func(n *clusterNode) string { all := n.requests(); return all[len(all)-1].Get(wire.HeaderIndex) }
	ask := func(index string) {
		first.set(func(n *clusterNode) { n.header.Set(wire.HeaderIndex, index) })
		_, _ = c.Version(t.Context())
	}
	ask("1-7")
	require.Empty(t, sent(first))
	ask("1-5")
	require.Equal(t, "1-7", sent(first))
	ask("x")
	require.Equal(t, "1-7", sent(first))
	ask("1-12")
	require.Equal(t, "1-7", sent(first))
	first.reject(http.StatusMisdirectedRequest, wire.WrongDeployment, false)
	ask("1-9999")
	require.Equal(t, "1-12", sent(second))
	ask("1-9999")
	require.Equal(t, "1-12", sent(second))
	require.Equal(t, "1-12", sent(first))
	second.set(func(n *clusterNode) { n.header.Set(wire.HeaderIndex, "2-3") }) // the ledger was restored
	_, _ = c.Version(t.Context())
	_, _ = c.Version(t.Context())
	require.Equal(t, "2-3", sent(second))
}

// After a code that is about one server, the next server is asked at once, whatever Retry-After says.
func TestNextServerIsAskedAtOnce(t *testing.T) {
	for _, code := range []wire.Code{wire.NoLeader, wire.LeaderLost, wire.Draining, wire.LedgerBehind} {
		first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
		first.reject(http.StatusServiceUnavailable, code, true)
		first.set(func(n *clusterNode) { n.body = strings.Replace(n.body, `_ms":1`, `_ms":60000`, 1) })
		c := newClusterClient(t, first, second)
		began := time.Now()
		_, err := c.Version(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), maxRetryAfter/2, "there is no pause")
		require.Len(t, first.requests(), 1)
		require.Len(t, second.requests(), 1)
		c.opts.times.retry = time.Millisecond
		second.reject(http.StatusServiceUnavailable, code, true)
		_, err = c.Version(t.Context())
		require.Equal(t, code, CodeOf(err))
		var unavailable *Unavailable
		require.ErrorAs(t, err, &unavailable)
	}
}

// A node that lost the leader does not know what became of the request. An answer of the next node that rejects it unread
// does not prove that nothing was opened.
func TestRequestMayHaveArrivedWhenTheLeaderWasLost(t *testing.T) {
	for code, want := range map[wire.Code]bool{wire.LeaderLost: true, wire.NoLeader: true, wire.LeaseUnavailable: true, wire.Draining: false, wire.LedgerBehind: false} {
		first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
		first.reject(http.StatusServiceUnavailable, code, true)
		second.reject(http.StatusNotFound, wire.NotFound, false)
		resp, err := newClusterClient(t, first, second).ask(t.Context(), request{method: http.MethodGet, path: "/v1/x"})
		require.Equal(t, wire.NotFound, CodeOf(err))
		require.Equal(t, want, resp.mayHaveArrived, code)
	}
}

// A server that does not admit the caller says nothing about the next one, which may have carried the request out before it fell
// silent.
func TestRequestMayHaveArrivedAtASilentServer(t *testing.T) {
	first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
	first.reject(http.StatusUnauthorized, wire.Unauthenticated, false)
	second.set(func(n *clusterNode) { n.header[wire.HeaderEcho] = nil }) // other software
	resp, err := newClusterClient(t, first, second).ask(t.Context(), request{method: http.MethodGet, path: "/v1/x"})
	require.Equal(t, wire.Unauthenticated, CodeOf(err))
	require.Len(t, second.requests(), 1)
	require.True(t, resp.mayHaveArrived)
}

// A position that one node's log no longer has is asked for at another node, once.
func TestExpiredPositionIsMetAtAnotherServer(t *testing.T) {
	first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
	first.reject(http.StatusGone, wire.Expired, false)
	c := newClusterClient(t, first, second)
	_, err := c.EventPage(t.Context(), EventQuery{After: "1.0"}, 0)
	require.NoError(t, err)
	require.Len(t, first.requests(), 1)

	second.reject(http.StatusGone, wire.Expired, false)
	_, err = c.EventPage(t.Context(), EventQuery{After: "1.0"}, 0)
	require.Equal(t, wire.Expired, CodeOf(err))
	require.Len(t, first.requests(), 2)
	require.Len(t, second.requests(), 2)
	for _, err := range c.Events(t.Context(), EventQuery{After: "1.0"}) {
		require.Equal(t, wire.Expired, CodeOf(err))
	}
	require.Len(t, first.requests(), 3)
	require.Len(t, second.requests(), 3)

	second.Close() // of the two, only the first is left
	_, err = c.EventPage(t.Context(), EventQuery{After: "1.0"}, 0)
	require.Equal(t, wire.Expired, CodeOf(err))
	require.Len(t, first.requests(), 5)

	c = newClusterClient(t, first)
	_, err = c.EventPage(t.Context(), EventQuery{After: "1.0"}, 0)
	require.Equal(t, wire.Expired, CodeOf(err))
	require.Len(t, first.requests(), 6)
}

// After a 410 the stream goes on at another node, from the same position.
func TestStreamGoesOnAtAnotherServer(t *testing.T) {
	first, second := newClusterNode(t, "a", "a"), newClusterNode(t, "b", "a")
	first.reject(http.StatusGone, wire.Expired, false)
	second.set(func(n *clusterNode) {
		n.header.Set("Content-Type", wire.TypeEvents)
		n.header.Set(wire.HeaderIndex, "1-9")
		n.body = "id: 2.0\ndata: {\"id\":\"2.0\",\"kind\":\"opened\"}\n\n"
	})
	c := newClusterClient(t, first, second)
	for e, err := range c.Events(t.Context(), EventQuery{After: "1.0"}) {
		require.NoError(t, err)
		require.Equal(t, "2.0", e.ID)
		break
	}
	require.Equal(t, "1-9", c.ledgerIndex.header())
}
