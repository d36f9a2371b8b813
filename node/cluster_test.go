package node

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease/etcdlease"
)

// long skips a test that takes long in make test; make race runs it.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("make race runs it")
	}
}

// testCluster is a cluster of three nodes in this process.
type testCluster struct {
	t        testing.TB
	dir      string
	names    [3]string
	configs  [3]Config
	nodes    [3]*testNode
	started  [3]chan struct{} // closed when the node has started
	ended    [3]*nodeEnd
	cancels  [3]context.CancelFunc
	founding string
	token    string // the first one
}

// nodeEnd is the end of a node. err may be read when done is closed.
type nodeEnd struct {
	done chan struct{}
	err  error
}

// newTestCluster founds a cluster and starts its nodes.
func newTestCluster(t testing.TB, change ...func(*Config)) *testCluster {
	t.Helper()
	both := func(c *Config) {
		for _, f := range change {
			f(c)
		}
	}
	token := auth.NewSecret(flight.AllNamespaces)
	c := newTestClusterWith(t, peer.FoundOptions{TokenSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(token)))}, both)
	c.token = token
	return c
}

// newTestClusterWith founds a cluster with options and starts its nodes with configurations that change has changed.
func newTestClusterWith(t testing.TB, o peer.FoundOptions, change func(*Config)) *testCluster {
	t.Helper()
	c := foundTestCluster(t, func(string) peer.FoundOptions { return o }, change)
	for i := range c.names {
		c.start(i)
	}
	for i := range c.names {
		c.ready(i)
	}
	return c
}

// foundTestCluster founds a cluster. options get the data directory of the first node, and change the configuration of each.
func foundTestCluster(t testing.TB, options func(data string) peer.FoundOptions, change func(*Config)) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: t.TempDir(), names: [3]string{"a", "b", "c"}}
	c.founding = filepath.Join(c.dir, "founding")
	var nodes []peer.Node
	for _, name := range c.names {
		nodes = append(nodes, peer.Node{Name: name, Address: proctest.Address(t), Etcd: proctest.Address(t)})
	}
	require.NoError(t, peer.Found(c.founding, nodes, options(filepath.Join(c.dir, "a"))))
	for i, name := range c.names {
		c.configs[i] = Dev(filepath.Join(c.dir, name), "127.0.0.1:0")
		c.configs[i].Cluster = filepath.Join(c.founding, name)
		change(&c.configs[i])
	}
	return c
}

// start starts a node and returns at once.
func (c *testCluster) start(i int) {
	c.t.Helper()
	n, err := newNode(c.configs[i])
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), &nodeEnd{done: make(chan struct{})}
	c.nodes[i], c.cancels[i], c.started[i], c.ended[i] = &testNode{node: n}, cancel, started, ended
	go func() {
		defer close(ended.done)
		if err := n.start(ctx); err != nil {
			canceled, stop := context.WithCancel(ctx)
			stop()
			ended.err = errors.Join(err, n.parts.wait(canceled))
			return
		}
		close(started)
		ended.err = n.parts.wait(ctx)
	}()
	c.t.Cleanup(func() { c.stop(i) })
}

// stop stops a node, if it runs.
func (c *testCluster) stop(i int) {
	if c.cancels[i] != nil {
		c.cancels[i]()
		<-c.ended[i].done
		c.cancels[i] = nil
	}
}

// ready waits until a node serves callers.
func (c *testCluster) ready(i int) {
	c.t.Helper()
	select {
	case <-c.ended[i].done:
		require.NoError(c.t, c.ended[i].err, "node %s has ended", c.names[i])
	case <-c.started[i]:
	case <-time.After(waitLimit):
		require.Fail(c.t, "the node does not start", c.names[i])
	}
	require.Eventually(c.t, func() bool {
		answer, err := http.Get(c.nodes[i].server.url() + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, waitLimit, 20*time.Millisecond, "node %s is not ready", c.names[i])
}

// endOf waits until a node has ended by itself, and returns its error.
func (c *testCluster) endOf(i int) error {
	c.t.Helper()
	select {
	case <-c.ended[i].done:
		c.cancels[i] = nil
		return c.ended[i].err
	case <-time.After(waitLimit):
		require.Fail(c.t, "the node runs on", c.names[i])
		return nil
	}
}

// leader returns the number of the node that acts.
func (c *testCluster) leader() (lead int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for i, n := range c.nodes {
			if c.cancels[i] != nil && n.act.Load() != nil {
				lead = i
				return true
			}
		}
		return false
	}, waitLimit, 10*time.Millisecond, "no node leads")
	return lead
}

// pay opens and reports flights at a node.
func (c *testCluster) pay(i int, from, to int) {
	c.t.Helper()
	url := c.nodes[i].server.url()
	for n := from; n < to; n++ {
		a := openAttempt(c.t, url, fmt.Sprint("order-", n))
		status, body := report(c.t, url, a)
		require.Equal(c.t, http.StatusOK, status, body)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(to))
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

// A disk that was rolled back has forgotten entries that its node has acknowledged, and perhaps its vote: it does not vote. The
// file that tells a copy is made to fit, as in the snapshot of a virtual machine.
func TestCluster_RolledBackDiskDoesNotVote(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	c.pay(0, 0, 3)
	away := (c.leader() + 1) % 3
	c.stop(away)
	data, kept := c.configs[away].Data, filepath.Join(c.dir, "kept")
	copyTree(t, filepath.Join(data, "ledger"), kept)
	c.start(away)
	c.ready(away)
	c.pay(away, 3, 6)
	last := c.nodes[c.leader()].store.LastApplied().Index
	require.Eventually(t, func() bool { return c.nodes[away].store.LastApplied().Index >= last }, waitLimit, 10*time.Millisecond)
	require.NoError(t, c.nodes[away].record.Write(t.Context()))
	c.stop(away)

	copyTree(t, kept, filepath.Join(data, "ledger"))
	require.NoError(t, writePlace(data))
	c.start(away)
	var lost *LedgerLostError
	require.ErrorAs(t, c.endOf(away), &lost)
	require.Greater(t, lost.Recorded.Index, lost.Last.Index)
	c.pay((away+1)%3, 6, 7) // the others go on

	// A copy of a member's directory at another place is recognised as one.
	copyTree(t, c.configs[(away+1)%3].Data, data)
	c.start(away)
	var copied *CopiedError
	require.ErrorAs(t, c.endOf(away), &copied)
}

// Every node takes every request: what the leader does is passed on whole, and a request waits for a leader.
func TestCluster_EveryNodeTakesEveryRequest(t *testing.T) {
	t.Parallel()
	inOneTerm(t, everyNodeTakesEveryRequest)
}

func everyNodeTakesEveryRequest(t *trial) {
	c := newTestCluster(t)
	lead := t.leader(c)
	for i := range c.nodes {
		c.pay(i, i*2, i*2+2)
	}
	for i := range c.nodes {
		answer, err := http.Get(c.nodes[i].server.url() + "/v1/flights")
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, []string{c.names[i]}, answer.Header["Flightd-Node"])
		require.Equal(t, []string{c.names[lead]}, answer.Header["Flightd-Leader"])
		require.Len(t, answer.Header["Flightd-Index"], 1)
		require.Equal(t, i != lead, monitor{c.nodes[i].node}.about(t.Context()).LedgerTime.IsZero(), "only the leader knows the ledger's time")
	}

	// A large body goes through, too.
	a := openAttempt(t, c.nodes[(lead+1)%3].server.url(), "large")
	large := strings.Repeat("x", 300<<10)
	status, body, err := post(c.nodes[(lead+2)%3].server.url()+"/v1/flights/"+a.FlightID+"/report",
		`{"fencing_token":"`+a.FencingToken+`","key":"`+a.Key+`","outcome":"succeeded","body":"`+large+`"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%.300s", body)

	// A backup is sent by the leader, also when another node is asked, and all nodes know of it.
	asked := time.Now().Add(-time.Second)
	answer, err := http.Get(c.nodes[(lead+1)%3].server.url() + "/v1/backup")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	for i := range c.nodes {
		require.Eventually(t, func() bool {
			nodes := monitor{c.nodes[i].node}.clusterState().Nodes
			at := slices.IndexFunc(nodes, func(n wire.ClusterNode) bool { return n.BackedUp.After(asked) })
			return at >= 0 && nodes[at].Name == c.names[lead]
		}, waitLimit, 20*time.Millisecond)
	}

	// A session of one node is renewed at the others, and a cancel that is asked for at one is told by the renewal at another.
	follower, other := c.nodes[(lead+1)%3].server.url(), c.nodes[(lead+2)%3].server.url()
	status, body, err = post(follower+"/v1/sessions", `{"ttl_ms":15000}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, body)
	var session wire.SessionAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &session))
	status, body, err = post(follower+"/v1/flights:open", `{"action":"pay","id":"cancelled","nonce":"`+nonce("cancelled")+`","session":"`+session.Session+`"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &a))
	running := c.fetch((lead+2)%3, http.MethodGet, "/v1/flights/"+a.FlightID, "")
	cancel := c.fetch((lead+2)%3, http.MethodPost, "/v1/flights/"+a.FlightID+"/cancel", `{"reason":"a test","actor":"ada"}`, "If-Match", running.header.Get("ETag"))
	require.Equal(t, http.StatusOK, cancel.status, cancel.body)
	for range 2 {
		status, body, err = post(other+"/v1/sessions/"+session.Session+"/renew", `{}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"cancel_requested":["`+a.FlightID+`"]`)
	}

	// The leader goes away; a request at another node waits for the next one.
	c.stop(lead)
	c.pay((lead+1)%3, 10, 11)
}

// cut takes the ledger of all nodes apart, and leaves etcd whole; heal ends it.
func (c *testCluster) cut() (heal func()) {
	for _, n := range c.nodes {
		n.cluster.port.SetAdmit(func(peer.Identity) error { return errors.New("cut off by a test") })
	}
	return func() {
		for _, n := range c.nodes {
			n.cluster.port.SetAdmit(n.cluster.admit)
		}
	}
}

// While the ledger has no majority, nobody is answered an untruth, and sessions live on as long as their owners renew them: an
// effect that takes long is reported afterwards.
func TestCluster_LedgerWithoutMajorityEndsNoAttempt(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t)
	url := func(i int) string { return c.nodes[i].server.url() }
	status, body, err := post(url(0)+"/v1/sessions", `{"ttl_ms":3000}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, body)
	var session wire.SessionAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &session))
	status, body, err = post(url(1)+"/v1/flights:open", `{"action":"pay","id":"long","input":{"n":1},"nonce":"`+nonce("long")+`","session":"`+session.Session+`","wait_ms":0}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, body)
	var open wire.OpenAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &open))
	c.pay(0, 0, 1)
	lead := c.leader()
	heal := c.cut()

	until := time.Now().Add(10 * time.Second)
	prolonged := 0
	for n := 0; time.Now().Before(until); n++ {
		status, body, err = post(url(n%3)+"/v1/sessions/"+session.Session+"/renew", `{}`)
		require.NoError(t, err)
		if status == http.StatusServiceUnavailable {
			continue // the leader steps down
		}
		require.Equal(t, http.StatusOK, status, body)
		var renewed wire.SessionAnswer
		require.NoError(t, json.Unmarshal([]byte(body), &renewed))
		if renewed.TrustMS == 0 {
			prolonged++
			require.Empty(t, renewed.Open, body)
		}
	}
	require.Greater(t, prolonged, 3)
	require.Nil(t, c.nodes[lead].act.Load(), "a leader without a majority does not act")
	answer, err := http.Get(url(lead) + "/v1/flights")
	require.NoError(t, err)
	_ = answer.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)

	heal()
	healed := time.Now()
	c.leader()
	t.Logf("a node leads %v after the cut was healed", time.Since(healed).Round(time.Millisecond))
	require.Eventually(t, func() bool {
		status, body = report(t, url(0), open)
		return status == http.StatusOK
	}, waitLimit, 50*time.Millisecond, "the report is not accepted")
	require.NotContains(t, body, "fenced")
	c.pay(2, 1, 2)
}

// A request that breaks off on the way to the leader may have been acted on: it is not sent again. One that the other node has
// refused to act on, and a GET, are.
func TestCluster_ARequestIsSentOnce(t *testing.T) {
	t.Parallel()
	inOneTerm(t, aRequestIsSentOnce)
}

func aRequestIsSentOnce(t *trial) {
	c := newTestCluster(t)
	lead := t.leader(c)
	at := c.nodes[(lead+1)%3]
	port := c.nodes[lead].cluster.port
	own := peerAPI{c.nodes[lead].node}.handler()
	var posts, gets, refused atomic.Int32
	port.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/v1/"):
			own.ServeHTTP(w, r)
		case r.URL.Path == "/v1/flights:abandon" && refused.Add(1) == 1:
			w.Header().Set(headerNotLeader, "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodPost && r.URL.Path == "/v1/flights:open":
			posts.Add(1)
			_, _ = io.ReadAll(r.Body)
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodGet && gets.Add(1) == 1:
			panic(http.ErrAbortHandler)
		default:
			own.ServeHTTP(w, r)
		}
	}))
	defer port.SetHandler(own)
	status, body, err := post(at.server.url()+"/v1/flights:open", `{"action":"pay","id":"once","input":{"n":1},"nonce":"`+nonce("once")+`","wait_ms":0}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status, body)
	require.Contains(t, body, `"leader_lost"`)
	require.Equal(t, int32(1), posts.Load(), "the open was sent again")

	answer, err := http.Get(at.server.url() + "/v1/flights")
	require.NoError(t, err)
	_ = answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, int32(2), gets.Load())

	status, body, err = post(at.server.url()+"/v1/flights:abandon", `{"action":"pay","id":"once","nonce":"`+nonce("once")+`","not_after":1}`)
	require.NoError(t, err)
	require.Equal(t, int32(2), refused.Load(), "%d %s", status, body)
	require.NotEqual(t, http.StatusServiceUnavailable, status, body)
}

// What callers send to any node of a cluster. Headers between nodes mean nothing when a caller sends them. A node passes a request on as it was
// written, and a leader that asks for no tokens takes none from a node that does. A body that does not arrive is a problem, and no empty answer
// of success.
func TestCluster_CallersCannotPoseAsNodes(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	t.Run("headers", func(t *testing.T) {
		for i := range c.nodes {
			r, err := http.NewRequest(http.MethodGet, c.nodes[i].server.url()+"/v1/flights", http.NoBody)
			require.NoError(t, err)
			r.Header.Set(headerCaller, "10.9.9.9:1")
			r.Header.Set(headerNotLeader, "1")
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			_ = answer.Body.Close()
			require.Equal(t, http.StatusOK, answer.StatusCode)
			for _, path := range []string{foundingPath, statusPath} { // they are on the port between nodes alone
				answer, err := http.Get(c.nodes[i].server.url() + path)
				require.NoError(t, err)
				_ = answer.Body.Close()
				require.Equal(t, http.StatusNotFound, answer.StatusCode, path)
			}
			_, err = http.Get("https://" + c.nodes[i].cluster.founding.Self.Address + statusPath)
			require.Error(t, err, "the port between nodes takes nobody without a node's certificate")
		}
	})
	t.Run("judged by the leader", func(t *testing.T) {
		at := c.nodes[(lead+1)%3]
		still := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		for path, want := range map[string]int{
			"/v1/flights/../tokens": http.StatusNotFound, "/v1/flights?state=%zz": http.StatusBadRequest, "/v1/flights?limit=1;a=2": http.StatusBadRequest,
		} {
			for _, n := range []*testNode{c.nodes[lead], at} {
				r, err := http.NewRequest(http.MethodGet, n.server.url(), http.NoBody)
				require.NoError(t, err)
				path, query, _ := strings.Cut(path, "?")
				r.URL.Opaque = strings.TrimPrefix(n.server.url(), "http:") + path
				r.URL.RawQuery = query
				answer, err := still.Do(r)
				require.NoError(t, err)
				_ = answer.Body.Close()
				require.Equal(t, want, answer.StatusCode, "%s?%s at %s", path, query, n.name())
			}
		}
		r, err := http.NewRequest(http.MethodGet, "https://"+c.names[lead]+"/v1/flights", http.NoBody)
		require.NoError(t, err)
		r.Header.Set(headerCaller, "10.0.0.1:1")
		r.Header.Set(headerTokens, "yes")
		answer, err := at.cluster.port.Client(c.names[lead]).RoundTrip(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	})
	t.Run("an incomplete body", func(t *testing.T) {
		for i, n := range c.nodes {
			conn, err := net.Dial("tcp", strings.TrimPrefix(n.server.url(), "http://"))
			require.NoError(t, err)
			_, err = conn.Write([]byte("POST /v1/flights:open HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"))
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			answer, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Contains(t, string(answer), "HTTP/1.1 408 ", "node %s, the leader is %s", c.names[i], c.names[lead])
			require.Contains(t, string(answer), `"request_incomplete"`)
			require.NoError(t, conn.Close())
		}
	})
}

// A member of etcd that lost its directory has lost sessions that live, and its votes. Its node does not start with an empty one.
func TestCluster_LostEtcdDirectoryIsNoNewMember(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	away := (c.leader() + 1) % 3
	c.stop(away)
	require.NoError(t, os.RemoveAll(filepath.Join(c.configs[away].Data, "etcd", "member")))
	c.start(away)
	var stranger *NotMemberError
	require.ErrorAs(t, c.endOf(away), &stranger)
	require.Contains(t, stranger.Reason, "etcd's votes and sessions")
	c.pay((away+1)%3, 0, 1) // the others go on
}

// A node that dies after the founding was agreed, and before its ledger has an entry, takes part later.
func TestCluster_LateFounderTakesPart(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	c.pay(0, 0, 2)
	away := (c.leader() + 1) % 3
	c.stop(away)
	ledger := filepath.Join(c.configs[away].Data, "ledger")
	kept := make(map[string][]byte)
	for _, name := range []string{"IDENTITY", membersName} {
		text, err := os.ReadFile(filepath.Join(ledger, name))
		require.NoError(t, err)
		kept[name] = text
	}
	// As it was when the instances were stored: no log, no record in etcd, and IDENTITY without the mark of a first entry.
	require.NoError(t, os.RemoveAll(ledger))
	require.NoError(t, os.MkdirAll(ledger, 0o700))
	var id struct{ Node, Cluster string }
	require.NoError(t, json.Unmarshal(kept["IDENTITY"], &id))
	sum := crc32.ChecksumIEEE(fmt.Appendf(nil, "1 %q %q false", id.Node, id.Cluster))
	kept["IDENTITY"] = fmt.Appendf(nil, `{"format":1,"node":%q,"cluster":%q,"sum":%d}`, id.Node, id.Cluster, sum)
	for name, text := range kept {
		require.NoError(t, os.WriteFile(filepath.Join(ledger, name), text, 0o600))
	}
	other := c.nodes[(away+1)%3]
	deployment := other.store.Header().Deployment
	_, err := other.etcd.client.Delete(t.Context(), etcdlease.DefaultRoot.Prefix(deployment)+"ledger/"+c.names[away], clientv3.WithPrefix())
	require.NoError(t, err)
	require.NoError(t, writePlace(c.configs[away].Data))
	c.start(away)
	c.ready(away)
	require.Equal(t, deployment, c.nodes[away].store.Header().Deployment)
	c.pay(away, 2, 3)
}

// A node that does not lead says no to nobody: neither "your session is lost" nor "the ledger has lost entries".
func TestCluster_RenewalWithoutALeaderIsNeverRefused(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	at := (c.leader() + 1) % 3
	deployment := c.nodes[at].store.Header().Deployment
	status, body, err := post(c.nodes[at].server.url()+"/v1/sessions", `{"ttl_ms":15000}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, body)
	var session wire.SessionAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &session))
	defer c.cut()()
	require.Eventually(t, func() bool { return c.nodes[at].store.Leader() == "" }, waitLimit, 10*time.Millisecond)
	renew := func(id string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, c.nodes[at].server.url()+"/v1/sessions/"+id+"/renew", strings.NewReader(`{}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(wire.HeaderDeployment, deployment)
		r.Header.Set(wire.HeaderIndex, wire.Index{Epoch: 1, Entry: 1 << 40}.String()) // the caller has seen what this node has not applied
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	status, body = renew(session.Session)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"trust_ms":0`)
	status, body = renew("ses_neverseen")
	require.Equal(t, http.StatusServiceUnavailable, status, body)
}
