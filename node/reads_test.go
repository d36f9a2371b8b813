package node

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestFreshness(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var f *freshness
	require.Zero(t, f.completeAt(100), "nothing is known before the first answer")
	f = f.next(freshness{index: 10, asked: at(1)}, 5)
	require.Zero(t, f.completeAt(9))
	require.Equal(t, at(1), f.completeAt(10))
	f = f.next(freshness{index: 12, asked: at(2)}, 10)
	require.Equal(t, at(1), f.completeAt(11), "the answer before counts until the entries of the new one are applied")
	require.Equal(t, at(2), f.completeAt(12))
	for s := 3; s < 10; s++ { // this node is a little behind at each answer
		f = f.next(freshness{index: uint64(10 + s), asked: at(s)}, uint64(9+s))
	}
	require.Equal(t, at(8), f.completeAt(18), "the age does not grow with the number of answers")
	require.Equal(t, at(9), f.completeAt(19))
}

// answer is an answer of a node.
type answer struct {
	status int
	header http.Header
	body   string
}

// fetch sends a request with a token to a node. header has names and values in turn.
func (c *testCluster) fetch(i int, method, path, body string, header ...string) answer {
	c.t.Helper()
	r, err := http.NewRequest(method, c.nodes[i].server.url()+path, strings.NewReader(body))
	require.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	got, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(c.t, err)
	return answer{got.StatusCode, got.Header, string(text)}
}

// open opens a flight.
func (c *testCluster) open(i int, id, seed string) answer {
	c.t.Helper()
	return c.fetch(i, http.MethodPost, "/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce(seed)+`","wait_ms":0}`)
}

// run opens a flight and reports its outcome. It returns the id.
func (c *testCluster) run(i int, id, outcome string) string {
	c.t.Helper()
	a := c.open(i, id, id)
	require.Equal(c.t, http.StatusCreated, a.status, a.body)
	var o wire.OpenAnswer
	require.NoError(c.t, json.Unmarshal([]byte(a.body), &o))
	a = c.fetch(i, http.MethodPost, "/v1/flights/"+o.FlightID+"/report", `{"fencing_token":"`+o.FencingToken+`",`+outcome+`}`)
	require.Equal(c.t, http.StatusOK, a.status, a.body)
	return o.FlightID
}

const succeeded = `"outcome":"succeeded","external_id":"ch_1","body":{"ok":true}`

// isolate cuts one node off from the others; heal ends it.
func (c *testCluster) isolate(i int) (heal func()) {
	port := c.nodes[i].cluster.port
	port.SetAdmit(func(peer.Identity) error { return errors.New("cut off by a test") })
	return func() { port.SetAdmit(c.nodes[i].cluster.admit) }
}

// complete waits until a node's view has everything that was acknowledged before.
func (c *testCluster) complete(i int) {
	c.t.Helper()
	began := time.Now()
	require.Eventually(c.t, func() bool {
		n := c.nodes[i]
		return n.cluster.fresh.Load().completeAt(n.store.LastApplied().Index).After(began)
	}, waitLimit, 5*time.Millisecond, "node %s does not keep up", c.names[i])
}

// passedOn counts the requests that the leader gets from other nodes.
func (c *testCluster) passedOn(lead int) (count *atomic.Int32) {
	own := peerAPI{c.nodes[lead].node}.handler()
	count = new(atomic.Int32)
	c.nodes[lead].cluster.port.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			count.Add(1)
		}
		own.ServeHTTP(w, r)
	}))
	return count
}

// aged makes the newest answer of the leader older, as seen by a node.
func (c *testCluster) aged(i int, by time.Duration) {
	old := c.nodes[i].cluster.fresh.Load()
	c.nodes[i].cluster.fresh.Store(&freshness{index: old.index, asked: time.Now().Add(-by)})
}

// A leader that has lost its majority answers final receipts, as the others do, although it never asked a leader.
func TestCluster_FormerLeaderAnswersFinalReceipts(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	id := c.run(lead, "done", succeeded)
	c.complete(lead)
	defer c.cut()()
	require.Eventually(t, func() bool { return c.nodes[lead].act.Load() == nil }, waitLimit, 5*time.Millisecond)
	require.Equal(t, http.StatusOK, c.fetch(lead, http.MethodGet, "/v1/flights/"+id, "").status)
}

// A node that does not lead answers final receipts from its own ledger, also when it is cut off, and then with their age. It
// passes everything else on, and says no to nobody.
func TestCluster_FollowerAnswersFinalReceipts(t *testing.T) {
	t.Parallel()
	inOneTerm(t, followerAnswersFinalReceipts)
}

func followerAnswersFinalReceipts(t *trial) {
	c := newTestCluster(t)
	lead := t.leader(c)
	at := (lead + 1) % 3
	id := c.run(lead, "done", succeeded)
	refused := c.run(lead, "refused", `"outcome":"refused","external_id":"no_1","body":{"ok":false}`)
	failed := c.run(lead, "failed", `"outcome":"not_done","error":"no connection"`)
	redacted := c.run(lead, "redacted", succeeded)
	require.Equal(t, http.StatusOK, c.fetch(lead, http.MethodPost, "/v1/flights/"+redacted+"/redact", `{"reason":"asked for","actor":"ada"}`,
		"If-Match", c.fetch(lead, http.MethodGet, "/v1/flights/"+redacted, "").header.Get("ETag")).status)
	c.complete(at)
	passed := c.passedOn(lead)

	direct := c.fetch(lead, http.MethodGet, "/v1/flights/"+id, "")
	var final map[string]answer
	require.Eventually(t, func() bool { // under load the view may become old meanwhile
		c.complete(at)
		final = map[string]answer{
			"flight":  c.fetch(at, http.MethodGet, "/v1/flights/"+id, ""),
			"receipt": c.fetch(at, http.MethodGet, "/v1/flights/"+id+"/receipt", ""),
			"refused": c.fetch(at, http.MethodGet, "/v1/flights/"+refused+"/receipt", ""),
			"open":    c.open(at, "done", "another"),
		}
		for _, a := range final {
			if a.header.Get("Age") != "" {
				return false
			}
		}
		return true
	}, waitLimit, time.Millisecond, "a new view is said to be old")
	require.Equal(t, direct.body, final["flight"].body)
	for name, a := range final {
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.body)
		require.Equal(t, []string{c.names[at]}, a.header["Flightd-Node"], name)
		require.Equal(t, []string{c.names[lead]}, a.header["Flightd-Leader"], name)
		require.Len(t, a.header["Flightd-Index"], 1, name)
		require.Len(t, a.header["X-Request-Id"], 1, name)
		require.Empty(t, a.header["Flightd-Ledger-Time"], name)
	}
	replay := c.open(at, "refused", "another")
	require.Equal(t, http.StatusFailedDependency, replay.status, replay.body)
	require.Equal(t, http.StatusNotModified, c.fetch(at, http.MethodGet, "/v1/flights/"+id, "", "If-None-Match", direct.header.Get("ETag")).status)
	require.Zero(t, passed.Load(), "the leader was asked")

	// Everything else is the leader's.
	deployment := c.nodes[at].store.Header().Deployment
	ahead := wire.Index{Epoch: 1, Entry: 1 << 40}.String()
	for name, want := range map[string]struct {
		answer answer
		status int
	}{
		"failed":            {c.fetch(at, http.MethodGet, "/v1/flights/"+failed, ""), http.StatusOK},
		"redacted":          {c.fetch(at, http.MethodGet, "/v1/flights/"+redacted+"/receipt", ""), http.StatusGone},
		"redacted, open":    {c.open(at, "redacted", "another"), http.StatusOK},
		"conflict":          {c.fetch(at, http.MethodPost, "/v1/flights:open", `{"action":"pay","id":"done","input":{"n":2},"nonce":"`+nonce("x")+`","wait_ms":0}`), http.StatusUnprocessableEntity},
		"unknown":           {c.fetch(at, http.MethodGet, "/v1/flights/"+flight.MustKey("default/pay/never").FlightID().String(), ""), http.StatusNotFound},
		"another ledger":    {c.fetch(at, http.MethodGet, "/v1/flights/"+id, "", wire.HeaderDeployment, "other"), http.StatusMisdirectedRequest},
		"a later position":  {c.fetch(at, http.MethodGet, "/v1/flights/"+id, "", wire.HeaderDeployment, deployment, wire.HeaderIndex, ahead), http.StatusServiceUnavailable},
		"a wait":            {c.fetch(at, http.MethodGet, "/v1/flights/"+id, "", "If-None-Match", direct.header.Get("ETag"), wire.HeaderPrefer, "wait=1"), http.StatusNotModified},
		"a list":            {c.fetch(at, http.MethodGet, "/v1/flights", ""), http.StatusOK},
		"an unknown option": {c.fetch(at, http.MethodGet, "/v1/flights/"+id+"?x=1", ""), http.StatusBadRequest},
	} {
		require.Equal(t, want.status, want.answer.status, "%s: %s", name, want.answer.body)
		require.Len(t, want.answer.header["X-Request-Id"], 1, name)
		require.Len(t, want.answer.header["Flightd-Leader"], 1, name)
		require.Len(t, want.answer.header["Flightd-Ledger-Time"], 1, name)
	}
	require.Equal(t, int32(10), passed.Load())

	// A node that is cut off says how old its view is, and what it does not know, it does not deny. The key is freed meanwhile.
	heal := c.isolate(at)
	free := c.fetch(lead, http.MethodPost, "/v1/flights/"+id+"/free", `{"reason":"again","actor":"ada"}`, "If-Match", direct.header.Get("ETag"))
	require.Equal(t, http.StatusOK, free.status, free.body)
	require.Eventually(t, func() bool {
		a := c.open(at, "done", "third")
		require.Equal(t, http.StatusOK, a.status, a.body)
		return a.header.Get("Age") != ""
	}, waitLimit, 20*time.Millisecond, "an old view is not said to be old")
	c.aged(at, time.Hour)
	a := c.open(at, "done", "third")
	age, err := strconv.Atoi(a.header.Get("Age"))
	require.NoError(t, err)
	require.InDelta(t, 3600, age, 5)
	require.Equal(t, http.StatusServiceUnavailable, c.fetch(at, http.MethodGet, "/v1/flights/"+failed, "").status)

	// The node hears of the leader again, and replays the receipt no more.
	heal()
	c.complete(at)
	a = c.open(at, "done", "fourth")
	require.Equal(t, http.StatusCreated, a.status, a.body)
}

// A token is judged by a view that is a minute old at most, and only the leader rejects one.
func TestCluster_FollowerJudgesTokens(t *testing.T) {
	t.Parallel()
	inOneTerm(t, followerJudgesTokens)
}

func followerJudgesTokens(t *trial) {
	c := newTestCluster(t, func(cfg *Config) { cfg.NoCredentials, cfg.FirstToken.Print = false, func(string) {} })
	lead := t.leader(c)
	at := (lead + 1) % 3
	require.Eventually(t, func() bool { return c.fetch(lead, http.MethodGet, "/v1/whoami", "").status == http.StatusOK }, waitLimit, 10*time.Millisecond)
	id := c.run(lead, "done", succeeded)
	made := c.fetch(lead, http.MethodPost, "/v1/tokens", `{"namespace":"default","name":"reader","verbs":["read"],"reason":"a test","actor":"ada"}`)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	var token struct {
		Secret string `json:"token"`
	}
	require.NoError(t, json.Unmarshal([]byte(made.body), &token))
	require.NotEmpty(t, token.Secret, made.body)
	as := func(secret string) answer {
		return c.fetch(at, http.MethodGet, "/v1/flights/"+id+"/receipt", "", "Authorization", "Bearer "+secret)
	}
	c.complete(at)
	passed := c.passedOn(lead)
	require.Equal(t, http.StatusOK, as(token.Secret).status)
	require.Zero(t, passed.Load())
	require.Equal(t, http.StatusUnauthorized, as("fltd_unknown").status)
	require.Equal(t, int32(1), passed.Load(), "a node that does not lead rejects a token")

	require.Equal(t, http.StatusOK, c.fetch(lead, http.MethodDelete, "/v1/tokens/default/reader", `{"reason":"over","actor":"ada"}`).status)
	require.Eventually(t, func() bool { return as(token.Secret).status == http.StatusUnauthorized }, waitLimit, time.Millisecond)

	// The leader does not say any more how far it is. Its entries still arrive.
	own := peerAPI{c.nodes[lead].node}.handler()
	muted := http.NewServeMux()
	muted.Handle("/", own)
	var asked atomic.Int32
	muted.HandleFunc(appliedPath, func(w http.ResponseWriter, r *http.Request) {
		if from, _ := peer.From(r.Context()); from.Node == c.names[at] {
			asked.Add(1)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	c.nodes[lead].cluster.port.SetHandler(muted)
	require.Eventually(t, func() bool { return asked.Load() > 0 }, waitLimit, time.Millisecond)
	c.aged(at, maxTokenAge/2)
	a := c.fetch(at, http.MethodGet, "/v1/flights/"+id+"/receipt", "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	age, err := strconv.Atoi(a.header.Get("Age"))
	require.NoError(t, err)
	require.InDelta(t, 30, age, 15)
	reader := c.follow(at, "")
	defer reader.Close()
	c.run(lead, "shown", succeeded)
	lines := bufio.NewScanner(reader)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "the stream has ended", text)
	}
	until("default/pay/shown")
	c.aged(at, maxTokenAge+time.Second)
	c.run(lead, "hidden", succeeded)
	for lines.Scan() {
		require.NotContains(t, lines.Text(), "default/pay/hidden")
	}
	require.NoError(t, lines.Err(), "the stream ends as a whole answer, and the reader reconnects")

	defer c.isolate(at)()
	a = c.fetch(at, http.MethodGet, "/v1/flights/"+id+"/receipt", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Contains(t, a.body, `"no_leader"`)
}

// follow opens a stream of all events at a node.
func (c *testCluster) follow(i int, after string) io.ReadCloser {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.nodes[i].server.url()+"/v1/events?after="+cmp.Or(after, "0.0"), http.NoBody)
	require.NoError(c.t, err)
	r.Header.Set("Accept", wire.TypeEvents)
	r.Header.Set("Authorization", "Bearer "+c.token)
	got, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, got.StatusCode)
	require.Empty(c.t, got.Header["Flightd-Ledger-Time"], "the stream is the leader's")
	return got.Body
}

// A stream at a node that does not lead goes on when the leader changes: no event is missing or comes twice, and none is before
// the last one.
func TestCluster_StreamOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	at := (lead + 1) % 3
	c.complete(at)
	reader := c.follow(at, "0.0")
	defer reader.Close()
	events := make(chan wire.Event, 1000)
	go func() { // ends with the stream
		defer close(events)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			var e wire.Event
			if text, is := strings.CutPrefix(lines.Text(), "data: "); is && json.Unmarshal([]byte(text), &e) == nil && e.Kind == "reported" {
				events <- e
			}
		}
	}()
	var last flight.Version
	next := func(id string) {
		t.Helper()
		select {
		case e, open := <-events:
			require.True(t, open, "the stream has ended")
			require.Equal(t, "default/pay/"+id, e.Key)
			v, err := flight.ParseVersion(e.ID)
			require.NoError(t, err)
			require.True(t, v.After(last), "%s after %s", v, last)
			last = v
		case <-time.After(waitLimit):
			require.Fail(t, "no event", id)
		}
	}
	for n := range 5 {
		c.run(lead, fmt.Sprint("before-", n), succeeded)
		next(fmt.Sprint("before-", n))
	}
	c.stop(lead)
	for n := range 5 {
		c.run((lead+2)%3, fmt.Sprint("after-", n), succeeded)
		next(fmt.Sprint("after-", n))
	}

	// A page goes on after the same position at every node that runs.
	for _, i := range []int{at, (lead + 2) % 3} {
		c.run(i, fmt.Sprint("at-", i), succeeded)
		page := c.fetch(i, http.MethodGet, "/v1/events?kind=reported&after="+last.String(), "", wire.HeaderPrefer, "wait=10")
		require.Equal(t, http.StatusOK, page.status, page.body)
		next(fmt.Sprint("at-", i))
		require.Contains(t, page.body, last.String())
	}

	// A position that the ledger has not reached is judged by the leader.
	page := c.fetch(at, http.MethodGet, "/v1/events?after=999999999.0", "")
	require.Equal(t, http.StatusGone, page.status, page.body)
	require.NotEmpty(t, page.header["Flightd-Ledger-Time"])
}

// Duplicates that a node answers from its own ledger are counted there, and the leader takes them along with its status.
func TestCluster_DuplicatesAtAFollowerAreCounted(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	at := (lead + 1) % 3
	id := c.run(lead, "done", succeeded)
	c.complete(at)
	own := peerAPI{c.nodes[lead].node}.handler()
	var opens atomic.Int32
	c.nodes[lead].cluster.port.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			opens.Add(1)
		}
		own.ServeHTTP(w, r)
	}))
	for n := range 20 {
		require.Equal(t, http.StatusOK, c.open(at, "done", fmt.Sprint("again-", n)).status)
	}
	require.Zero(t, opens.Load())
	parsed, err := flight.ParseID(id)
	require.NoError(t, err)
	for _, i := range []int{lead, at, (lead + 2) % 3} {
		require.Eventually(t, func() bool {
			f, err := c.nodes[i].store.Flight(parsed)
			require.NoError(t, err)
			return f.Duplicates != nil && f.Duplicates.Count == 20
		}, waitLimit, 10*time.Millisecond, "the ledger of node %s lacks the duplicates", c.names[i])
	}
}
