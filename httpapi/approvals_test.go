package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// awaitApproval submits a flight that needs an approval.
func (ts *testServer) awaitApproval(id, approval string) (f *wire.Flight, etag string) {
	ts.t.Helper()
	r := ts.post("/v1/flights:submit", fmt.Sprintf(`{"action":"refund","id":%q,"approval":%s}`, id, approval))
	require.Equal(ts.t, http.StatusCreated, r.status, "%s", r.body)
	return decodeBody[wire.SubmitAnswer](ts.t, r).Flight, r.header.Get("ETag")
}

// Of many decisions at once, the first in the log counts: those like it replay it, and the others name it.
func TestApproval_ManyAtOnce(t *testing.T) {
	d := newTestServer(t)
	f, etag := d.awaitApproval("1", `{}`)
	answers := make([]reply, 16)
	var persons sync.WaitGroup
	for i := range answers {
		persons.Go(func() {
			verb := []string{"approve", "reject"}[i%2]
			answers[i] = d.post("/v1/flights/"+f.ID+"/"+verb, fmt.Sprintf(`{"actor":"person-%d","reason":"r"}`, i), "If-Match", etag)
		})
	}
	persons.Wait()
	var first, replayed, late int
	verb := -1
	for i, a := range answers {
		switch {
		case a.status == http.StatusOK && a.header.Get(wire.HeaderReplayed) == "":
			first, verb = first+1, i%2
		case a.status == http.StatusOK:
			replayed++
		default:
			require.Contains(t, requireProblem(t, a, http.StatusPreconditionFailed, wire.PreconditionFailed).Detail, " by person-")
			late++
		}
	}
	require.Equal(t, []int{1, 7, 8}, []int{first, replayed, late})
	for i, a := range answers {
		require.Equal(t, i%2 == verb, a.status == http.StatusOK)
	}
	result := []string{"approved", "rejected"}[verb]
	require.Equal(t, result, decodeBody[wire.Flight](t, d.get("/v1/flights/"+f.ID)).Resolution.Result)
}

// A decision counts for what the person saw: the version, and so the input, the policy and the generation.
func TestApproval_IsOfOneVersion(t *testing.T) {
	d := newTestServer(t)
	f, etag := d.awaitApproval("1", `{}`)
	path := "/v1/flights/" + f.ID
	r := d.post(path+"/cancel", `{"reason":"x"}`, "If-Match", etag)
	r = d.post(path+"/free", `{"reason":"x"}`, "If-Match", r.header.Get("ETag"))
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	requireProblem(t, d.post(path+"/approve", "{}", "If-Match", etag), http.StatusNotFound, wire.NotFound)
	r = d.post("/v1/flights:submit", `{"action":"refund","id":"1","input":{"cents":1},"approval":{}}`)
	require.Equal(t, http.StatusCreated, r.status, "%s", r.body)
	before := d.fake.Snapshot()
	p := requireProblem(t, d.post(path+"/approve", "{}", "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Contains(t, p.Detail, "cancelled")
	require.Equal(t, before, d.fake.Snapshot())
	require.Equal(t, http.StatusOK, d.post(path+"/approve", "{}", "If-Match", r.header.Get("ETag")).status)
}

// A decision is replayed whatever has become of the flight since, also after a doubt whose resolution replaced it in the record.
func TestApproval_IsReplayedAfterADoubt(t *testing.T) {
	d := newTestServer(t)
	f, etag := d.awaitApproval("1", `{}`)
	path := "/v1/flights/" + f.ID
	require.Equal(t, http.StatusOK, d.post(path+"/approve", `{"actor":"maria"}`, "If-Match", etag).status)
	a := d.proceed(`{"action":"refund","id":"1"}`)
	r := d.report(a, `"outcome":"unknown"`)
	r = d.post(path+"/resolve", `{"result":"fail","reason":"x","actor":"bob"}`, "If-Match", r.header.Get("ETag"))
	require.Equal(t, http.StatusOK, r.status, "%s", r.body)
	r = d.post(path+"/approve", `{"actor":"eve"}`, "If-Match", etag)
	require.Equal(t, "true", r.header.Get(wire.HeaderReplayed), "%s", r.body)
	require.Equal(t, "failed", decodeBody[wire.Flight](t, r).State)
	require.Contains(t, requireProblem(t, d.post(path+"/reject", "{}", "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed).Detail, "already approved on ")
}

// After its deadline an approval is rejected by the leader. Nobody can approve in between.
func TestApproval_Expires(t *testing.T) {
	d := newTestServer(t)
	f, etag := d.awaitApproval("1", `{"expires_ms":60000}`)
	path := "/v1/flights/" + f.ID
	d.fake.Ledger.Advance(time.Minute)
	p := requireProblem(t, d.post(path+"/approve", "{}", "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Contains(t, p.Detail, "the approval expired on ")
	require.NoError(t, d.fake.Sweeper.Sweep(t.Context()))
	got := decodeBody[wire.Flight](t, d.get(path))
	require.Equal(t, "cancelled", got.State)
	require.Equal(t, "rejected: "+flight.ApprovalExpired, got.Cause)
	require.Nil(t, got.Approval)
	p = requireProblem(t, d.post(path+"/approve", "{}", "If-Match", etag), http.StatusPreconditionFailed, wire.PreconditionFailed)
	require.Regexp(t, `^the approval expired on .*Z: nobody decided in time$`, p.Detail)
	require.Equal(t, "true", d.post(path+"/reject", "{}", "If-Match", etag).header.Get(wire.HeaderReplayed), "it is rejected already")
}

// The list has pages, and shows the waiting flights alone.
func TestApproval_List(t *testing.T) {
	d := newTestServer(t)
	want := map[string]bool{}
	for i := range 5 {
		f, etag := d.awaitApproval(fmt.Sprint(i), `{}`)
		if i == 3 {
			require.Equal(t, http.StatusOK, d.post("/v1/flights/"+f.ID+"/approve", "{}", "If-Match", etag).status)
			continue
		}
		want[f.ID] = true
	}
	d.proceed(`{"action":"refund","id":"running"}`)
	got := map[string]bool{}
	for path, pages := "/v1/approvals?action=refund&limit=2", 0; ; pages++ {
		r := d.get(path)
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		page := decodeBody[wire.FlightPage](t, r)
		for _, f := range page.Flights {
			require.Equal(t, "awaiting_approval", f.State)
			got[f.ID] = true
		}
		if page.Next == "" {
			break
		}
		path = "/v1/approvals?action=refund&limit=2&cursor=" + url.QueryEscape(page.Next)
		require.Less(t, pages, 10)
	}
	require.Equal(t, want, got)
}

// A reader sees approvals and cannot decide. The ledger records the token with the name that the caller chose, also of who asks.
func TestApproval_NeedsOperate(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{})
	shop, reader, oncall := g.as("billing", "shop", auth.Submit|auth.Read), g.as("billing", "reader", auth.Read), g.as("billing", "oncall", auth.Operate|auth.Read)
	r := shop.do("POST", "/v1/flights:submit", `{"action":"refund","id":"1","approval":{}}`, "Flightd-Actor", "cart")
	require.Equal(t, http.StatusCreated, r.status, "%s", r.body)
	f, etag := decodeBody[wire.SubmitAnswer](t, r).Flight, r.header.Get("ETag")
	require.Equal(t, "cart (token billing/shop)", f.Approval.RequestedBy)
	for _, verb := range []string{"approve", "reject"} {
		for _, caller := range []*tokenServer{shop, reader} {
			requireProblem(t, caller.do("POST", "/v1/flights/"+f.ID+"/"+verb, "", "If-Match", etag), http.StatusForbidden, wire.Forbidden)
		}
	}
	require.Len(t, decodeBody[wire.FlightPage](t, reader.do("GET", "/v1/approvals", "")).Flights, 1)
	require.Equal(t, http.StatusOK, oncall.do("POST", "/v1/flights/"+f.ID+"/approve", `{"actor":"maria","reason":"seen"}`, "If-Match", etag).status)
	entries := decodeBody[wire.AuditPage](t, oncall.do("GET", "/v1/audit", "")).Entries
	require.Equal(t, "decide_approval", entries[0].Verb)
	require.Equal(t, "maria (token billing/oncall)", entries[0].Actor)
	require.Equal(t, "seen", entries[0].Reason)
}
