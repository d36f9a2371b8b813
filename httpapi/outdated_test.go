package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// The network delivers a copy of a request again after a newer change of the same document. The copy changes nothing, for every kind of
// document, and also after the document was deleted. A repeat of the newest change and a request without a position are answered.
func TestDocuments_OldCopies(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) { c.Work.Sagas = &stepInputs{} })
	const json = "application/json"
	type request struct{ method, path, body string }
	send := func(q request, index string) reply {
		header := []string{"Content-Type", json}
		if index != "" {
			header = append(header, wire.HeaderIndex, index)
		}
		return d.send(q.method, q.path, q.body, header...)
	}
	index := func() string { return d.get("/v1/flights").header.Get(wire.HeaderIndex) }
	done := func(q request) (copied string) {
		t.Helper()
		copied = index()
		r := send(q, copied)
		require.Less(t, r.status, 300, "%s %s: %s", q.method, q.path, r.body)
		return copied
	}
	remove := func(path string) request { return request{"DELETE", path, `{"reason":"delete"}`} }
	action := func(recovery string) request {
		return request{"PUT", "/v1/actions/refund", `{"recovery":"` + recovery + `","reason":"r"}`}
	}
	limits := func(opens string) request {
		return request{"PUT", "/v1/namespaces/billing", `{"reason":"r","opens_per_second":` + opens + `,"burst":10,"max_open":10,"max_waits":10,"max_streams":10,"max_flights":1000}`}
	}
	pause := func(reason string) request {
		return request{"POST", "/v1/queues/charge/pause", `{"reason":"` + reason + `"}`}
	}
	resume := request{"POST", "/v1/queues/charge/resume", `{"reason":"r"}`}
	definition := request{"PUT", "/v1/sagas/trip/versions/1", `{"saga":"trip","version":1,"steps":[{"name":"hotel","no_undo":true}]}`}
	token := request{"POST", "/v1/tokens", `{"name":"ci","namespace":"billing","reason":"r","verbs":["read"]}`}
	rotate := request{"POST", "/v1/tokens", `{"name":"ci","namespace":"billing","reason":"r","rotate":true}`}
	for name, c := range map[string]struct{ before, old, newer []request }{
		"a changed action":          {old: []request{action("hold")}, newer: []request{action("resend")}},
		"a deleted action":          {old: []request{action("hold")}, newer: []request{remove("/v1/actions/refund")}},
		"the deletion of an action": {before: []request{action("hold")}, old: []request{remove("/v1/actions/refund")}, newer: []request{action("resend")}},
		"changed limits":            {old: []request{limits("5")}, newer: []request{limits("6")}},
		"deleted limits":            {old: []request{limits("5")}, newer: []request{remove("/v1/namespaces/billing")}},
		"a pause, resumed":          {old: []request{pause("a")}, newer: []request{resume}},
		"a resume, paused":          {before: []request{pause("a")}, old: []request{resume}, newer: []request{pause("b")}},
		"a definition, deleted":     {old: []request{definition}, newer: []request{remove("/v1/sagas/trip/versions/1")}},
		"a deletion, defined":       {before: []request{definition}, old: []request{remove("/v1/sagas/trip/versions/1")}, newer: []request{definition}},
		"a token, revoked":          {old: []request{token}, newer: []request{remove("/v1/tokens/billing/ci")}},
		"a rotation":                {before: []request{token}, old: []request{rotate}, newer: []request{rotate}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/actions/refund", "/v1/namespaces/billing", "/v1/sagas/trip/versions/1", "/v1/tokens/billing/ci"} {
				send(remove(path), "")
			}
			send(resume, "")
			for _, q := range c.before {
				done(q)
			}
			copied := done(c.old[0])
			for _, q := range c.newer {
				at := done(q)
				if again := send(q, at); q.method == "PUT" || q.path == resume.path || q.path == pause("").path {
					require.Less(t, again.status, 300, "a repeat of the newest change: %s", again.body)
				}
			}
			state := d.fake.Snapshot()
			r := send(c.old[0], copied)
			requireProblem(t, r, http.StatusPreconditionFailed, wire.PreconditionFailed)
			require.Equal(t, state, d.fake.Snapshot())
			if c.old[0] != rotate {
				require.Less(t, send(c.old[0], "").status, 300, "a caller that names no position")
			}
		})
	}
}
