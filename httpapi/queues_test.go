package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// A flight says what it waits for, and nothing while it runs and when it has ended.
func TestBlockedBy(t *testing.T) {
	d := newTestServer(t)
	blocks := func(id string) (reasons []string) {
		t.Helper()
		for _, b := range decodeBody[wire.Flight](t, d.get("/v1/flights/"+d.flightID("charge/"+id))).BlockedBy {
			require.NotContains(t, b.Detail, "\n")
			require.NotContains(t, b.Detail, "%!")
			require.Equal(t, b.Reason == wire.BlockedByTime || b.Reason == wire.BlockedByCallback, !b.Until.IsZero())
			reasons = append(reasons, b.Reason)
		}
		return reasons
	}
	submit := func(id, more string) {
		t.Helper()
		require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"charge","id":"`+id+`"`+more+`}`).status)
	}
	submit("first", `,"lane":"a"`)
	submit("second", `,"lane":"a"`)
	submit("later", `,"delay_ms":60000`)
	require.Equal(t, []string{"no_worker"}, blocks("first"))
	require.Equal(t, []string{"lane", "no_worker"}, blocks("second"))
	require.Equal(t, []string{"time", "no_worker"}, blocks("later"))
	session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
	d.fake.Apply(t, &flight.Submit{Key: flight.MustKey("default/charge/other"), Queue: &flight.Queue{Action: "charge.card"}})
	require.Equal(t, []string{"no_worker"}, blocks("other"))
	require.Equal(t, http.StatusOK, d.post("/v1/flights:claim", `{"session":"`+session+`","nonce":"m","actions":["nothing","charge.card"],"slots":1,"wait_ms":0}`).status)
	require.NotContains(t, blocks("other"), "no_worker", "the workers of its own action have asked")
	jobs := decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", `{"session":"`+session+`","nonce":"n","actions":["charge"],"slots":1,"wait_ms":0}`)).Jobs
	require.Len(t, jobs, 1)
	require.Empty(t, blocks("first"), "it runs")
	require.Equal(t, []string{"lane"}, blocks("second"))
	d.report(jobs[0].OpenAnswer, `"outcome":"not_done"`)
	require.Equal(t, []string{"time"}, blocks("first"), "its retry")
	body := d.get("/v1/flights/" + d.flightID("charge/second")).body
	require.Contains(t, string(body), "charge/first stands before it in the lane a, and is waiting for its retry")
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"look","id":"1","recovery":"verify","settle_ms":1}`).status)
	const unable = `{"session":"%s","nonce":"%s","actions":["look"],"without_look_up":["look"],"slots":1,"wait_ms":0}`
	jobs = decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", fmt.Sprintf(unable, session, "o"))).Jobs
	require.Len(t, jobs, 1)
	d.report(jobs[0].OpenAnswer, `"outcome":"unknown"`)
	d.fake.Ledger.Advance(time.Second)
	require.Empty(t, decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", fmt.Sprintf(unable, session, "p"))).Jobs)
	body = d.get("/v1/flights/" + d.flightID("look/1")).body
	require.Contains(t, string(body), "no worker of the action look that has asked within a minute has a look-up")
	d.openInDoubt("doubt")
	require.Equal(t, []string{"in_doubt"}, blocks("doubt"))
	a := d.proceed(`{"action":"charge","id":"called","callback":true}`)
	require.Empty(t, blocks("called"))
	require.Equal(t, http.StatusOK, d.post("/v1/flights/"+a.FlightID+"/suspend", `{"fencing_token":"`+a.FencingToken+`","deadline_ms":60000}`).status)
	require.Equal(t, []string{"callback"}, blocks("called"))
	a = d.proceed(`{"action":"charge","id":"done"}`)
	d.report(a, `"outcome":"succeeded"`)
	require.Empty(t, blocks("done"))
	list := string(d.get("/v1/flights").body)
	require.False(t, strings.Contains(list, "blocked_by"), list)
}

// A job that worker after worker gives back unread shows it, also while the next one holds it. An approval is the whole step: no worker is missing.
func TestBlockedBy_GivenBackAndGates(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = &stepInputs{} })
	reasons := func(id string) (all []string) {
		for _, b := range decodeBody[wire.Flight](t, d.get("/v1/flights/"+id)).BlockedBy {
			all = append(all, b.Reason)
		}
		return all
	}
	session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"charge","id":"1"}`).status)
	job := d.flightID("charge/1")
	for n := range 11 {
		require.Equal(t, n >= 10, slices.Contains(reasons(job), wire.BlockedByGivenBack), n)
		nonce := fmt.Sprint("n", n)
		jobs := decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", `{"session":"`+session+`","nonce":"`+nonce+`","actions":["charge"],"slots":1,"wait_ms":0}`)).Jobs
		require.Len(t, jobs, 1)
		queue := decodeBody[wire.QueueList](t, d.get("/v1/queues")).Queues[0]
		require.Equal(t, n >= 10, queue.Failing > 0, n)
		if n == 10 {
			require.Equal(t, []string{wire.BlockedByGivenBack}, reasons(job), "while it is handed out once more")
			require.Equal(t, []wire.FailingJob{{Key: "default/charge/1", Cause: "given back by an unnamed worker"}}, queue.FailingJobs)
			break
		}
		r := d.post("/v1/flights:abandon", fmt.Sprintf(`{"action":"charge","id":"1","nonce":%q,"not_after":%d}`, jobs[0].Nonce, d.fake.Ledger.Now().Add(20*time.Second)))
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	}

	gate := submitStep(t, d, flight.Policy{Approval: true})
	require.Equal(t, []string{wire.BlockedByApproval}, reasons(gate.FlightID().String()))
}

// A job that each worker reports as not done keeps failing from the third attempt on, and the list has the reason. It disappears at its end.
func TestQueues_FailingJobs(t *testing.T) {
	d := newTestServer(t)
	require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", `{"action":"mail","id":"1","retry":{"attempts":4}}`).status)
	for n := range 4 {
		queue := decodeBody[wire.QueueList](t, d.get("/v1/queues")).Queues[0]
		var want []wire.FailingJob
		if n > 2 {
			want = []wire.FailingJob{{Key: "default/mail/1", Cause: "the input is not a Mail"}}
		}
		require.Equal(t, want, queue.FailingJobs, n)
		require.Equal(t, len(want), queue.Failing)
		d.fake.Ledger.Advance(time.Minute)
		session := decodeBody[wire.SessionAnswer](t, d.post("/v1/sessions", `{}`)).Session
		jobs := decodeBody[wire.ClaimAnswer](t, d.post("/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"n%d","actions":["mail"],"slots":1,"wait_ms":20000}`, session, n))).Jobs
		require.Len(t, jobs, 1)
		r := d.post("/v1/flights/"+jobs[0].FlightID+"/report", fmt.Sprintf(`{"fencing_token":%q,"outcome":"not_done","error":"the input is not a Mail"}`, jobs[0].FencingToken))
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	}
	for _, queue := range decodeBody[wire.QueueList](t, d.get("/v1/queues")).Queues {
		require.Zero(t, queue.Failing, "it has failed for good")
	}
}

// The pages of the list have each queue once, in order: those with jobs, and those that are only paused.
func TestQueues_Pages(t *testing.T) {
	d := newTestServer(t)
	var want []string
	for _, namespace := range []string{"a", "a-b", "b"} { // - comes before the / of an id
		for i := range 3 {
			action := fmt.Sprintf("action-%d", i)
			want = append(want, namespace+"/"+action)
			if i != 1 {
				require.Equal(t, http.StatusCreated, d.post("/v1/flights:submit", fmt.Sprintf(`{"action":%q,"id":"1"}`, action), wire.HeaderNamespace, namespace).status)
			}
			if i > 0 {
				require.Equal(t, http.StatusOK, d.post("/v1/queues/"+action+"/pause", `{"reason":"why"}`, wire.HeaderNamespace, namespace).status)
			}
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for path := fmt.Sprintf("/v1/queues?limit=%d", limit); path != ""; {
			r := d.get(path, wire.HeaderNamespace, "*")
			page := decodeBody[wire.QueueList](t, r)
			require.LessOrEqual(t, len(page.Queues), limit)
			for _, q := range page.Queues {
				got = append(got, q.Namespace+"/"+q.Action)
				require.Equal(t, q.Action != "action-0", q.Paused != nil)
			}
			link, _, _ := strings.Cut(r.header.Get("Link"), ">")
			path = strings.TrimPrefix(link, "<")
			require.Equal(t, page.Next != "", path != "")
		}
		require.Equal(t, want, got, limit)
	}
	requireProblem(t, d.get("/v1/queues?cursor=b/action-0", wire.HeaderNamespace, "a"), http.StatusBadRequest, wire.InputInvalid)
	for _, query := range []string{"limit=0", "limit=501", "cursor=x", "limit=1&limit=2", "order=x"} {
		requireProblem(t, d.get("/v1/queues?"+query), http.StatusBadRequest, wire.InputInvalid)
	}
}

// A token sees and pauses the queues of its own namespace alone; the name * is for tokens of all namespaces.
func TestQueues_OfOneNamespace(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	const reason = `{"reason":"why"}`
	all := g.as("*", "all", auth.Operate|auth.Read|auth.Submit)
	own := g.as("billing", "own", auth.Operate|auth.Read|auth.Submit)
	for _, namespace := range []string{"billing", "shop"} {
		require.Equal(t, http.StatusOK, all.do(http.MethodPost, "/v1/queues/charge/pause", reason, wire.HeaderNamespace, namespace).status)
		require.Equal(t, http.StatusCreated, all.do(http.MethodPost, "/v1/flights:submit", `{"action":"charge","id":"1","lane":"a"}`, wire.HeaderNamespace, namespace).status)
	}
	namespaces := func(r reply) (names []string) {
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		for _, q := range decodeBody[wire.QueueList](t, r).Queues {
			require.NotNil(t, q.Paused)
			require.Equal(t, 1, q.Ready)
			names = append(names, q.Namespace)
		}
		return names
	}
	require.Equal(t, []string{"billing", "shop"}, namespaces(all.do(http.MethodGet, "/v1/queues", "", wire.HeaderNamespace, "*")))
	require.Equal(t, []string{"shop"}, namespaces(all.do(http.MethodGet, "/v1/queues", "", wire.HeaderNamespace, "shop")))
	require.Equal(t, []string{"billing"}, namespaces(own.do(http.MethodGet, "/v1/queues", "")))
	for _, r := range []reply{
		own.do(http.MethodGet, "/v1/queues", "", wire.HeaderNamespace, "*"),
		own.do(http.MethodGet, "/v1/queues", "", wire.HeaderNamespace, "shop"),
		own.do(http.MethodPost, "/v1/queues/charge/resume", reason, wire.HeaderNamespace, "shop"),
		own.do(http.MethodGet, "/v1/lanes?action=charge&lane=a", "", wire.HeaderNamespace, "shop"),
		own.do(http.MethodGet, "/v1/lanes?key=shop/charge/1", ""),
		g.as("billing", "reader", auth.Read).do(http.MethodPost, "/v1/queues/charge/resume", reason),
		g.as("billing", "worker", auth.Work).do(http.MethodGet, "/v1/queues", ""),
	} {
		requireProblem(t, r, http.StatusForbidden, wire.Forbidden)
	}
	require.Equal(t, 1, decodeBody[wire.Lane](t, own.do(http.MethodGet, "/v1/lanes?key=billing/charge/1", "")).Total)
	require.Equal(t, http.StatusOK, own.do(http.MethodPost, "/v1/queues/charge/resume", reason).status)
	require.Nil(t, decodeBody[wire.QueueList](t, own.do(http.MethodGet, "/v1/queues", "")).Queues[0].Paused)
	require.NotEmpty(t, namespaces(all.do(http.MethodGet, "/v1/queues", "", wire.HeaderNamespace, "shop")), "the pause of the other namespace stays")
	page := decodeBody[wire.AuditPage](t, all.do(http.MethodGet, "/v1/audit?limit=1", ""))
	require.Equal(t, "why", page.Entries[0].Reason)
	require.Contains(t, page.Entries[0].Actor, "billing/own")
	require.Contains(t, page.Entries[0].Subject, flight.KindQueue)
}
