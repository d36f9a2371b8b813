package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// An unknown parameter is rejected, like an unknown field: if dry_run were ignored, an open would act.
func TestUnexpectedParametersAreRejected(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1","nonce":"n"}`)
	b, etag := d.openInDoubt("2")
	running, doubt := "/v1/flights/"+a.FlightID, "/v1/flights/"+b.FlightID
	report := `{"fencing_token":"` + a.FencingToken + `","outcome":"succeeded"}`
	const reason = `{"reason":"x"}`
	before := d.fake.Snapshot()
	for path, body := range map[string]string{
		"/v1/flights:open": `{"action":"charge","id":"3"}`, "/v1/sessions": `{}`,
		"/v1/flights:abandon":      `{"action":"charge","id":"1","nonce":"n","not_after":1}`,
		"/v1/sessions/ses_1/renew": `{}`, "/v1/sessions/ses_1/close": `{}`,
		running + "/report": report, running + "/verification": `{"verification":"x","result":"unknown"}`,
		doubt + "/resolve": `{"result":"fail","reason":"x"}`, running + "/cancel": reason, running + "/retry": reason, running + "/free": reason, running + "/redact": reason,
		running: "", running + "/receipt": "",
	} {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		for query, at := range map[string]string{"?dry_run=true": "dry_run", "?dry_run=false&a": "a", "?=": "", "?%zz": "query"} {
			r := d.send(method, path+query, body, "If-Match", etag)
			p := requireProblem(t, r, http.StatusBadRequest, wire.InputInvalid)
			require.Len(t, p.Errors, 1)
			require.Equal(t, at, p.Errors[0].Parameter, "%s%s", path, query)
			require.Equal(t, before, d.fake.Snapshot(), "nothing has changed")
		}
	}
	require.Equal(t, http.StatusOK, d.get(running+"?").status, "an empty query")
}

// A duplicate header is rejected: the namespace or the version that the caller meant is unknown.
func TestDuplicateHeadersAreRejected(t *testing.T) {
	d := newTestServer(t)
	a, etag := d.openInDoubt("1")
	path := "/v1/flights/" + a.FlightID
	before := d.fake.Snapshot()
	for _, c := range []struct {
		method, path, body, header, first, second string
	}{
		{http.MethodPost, "/v1/flights:open", `{"action":"charge","id":"2"}`, wire.HeaderNamespace, "default", "billing"},
		{http.MethodPost, "/v1/flights:import", `{"key":"billing/charge/2","outcome":"succeeded"}`, wire.HeaderNamespace, "billing", "default"},
		{http.MethodGet, "/v1/flights", "", wire.HeaderNamespace, "billing", "default"},
		{http.MethodGet, "/v1/events", "", wire.HeaderNamespace, "billing", "default"},
		{http.MethodPost, path + "/resolve", `{"result":"fail","reason":"x"}`, "If-Match", etag, `"1.1"`},
		{http.MethodPost, path + "/cancel", `{"reason":"x"}`, "If-Match", "*", `"1.1"`},
		{http.MethodPost, path + "/resolve", `{"result":"fail","reason":"x"}`, wire.HeaderActor, "eve", "adam"},
		{http.MethodGet, "/v1/events", "", wire.HeaderLastEvent, "1.0", "2.0"},
	} {
		req, err := http.NewRequest(c.method, d.url+c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if strings.HasSuffix(c.path, ":import") {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
		if c.header != "If-Match" {
			req.Header.Set("If-Match", etag)
		}
		req.Header[c.header] = []string{c.first, c.second}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		p := requireProblem(t, reply{resp.StatusCode, resp.Header, body}, http.StatusBadRequest, wire.InputInvalid)
		require.Equal(t, c.header, p.Errors[0].Header, c.path)
		require.Equal(t, before, d.fake.Snapshot(), "nothing has changed")
	}
}
