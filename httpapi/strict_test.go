package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// An unknown parameter is rejected on every route, like an unknown field: if a mistyped dry_run were ignored, an import would import.
func TestUnexpectedParametersAreRejected(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) {
		c.Work.Sagas, c.Restores, c.Notify = &stepInputs{}, noRestores{}, notifications{}
	})
	d.proceed(`{"action":"charge","id":"1","nonce":"n"}`)
	before := d.fake.Snapshot()
	for pattern := range httpapi.Routes() {
		method, path := somePath(pattern)
		if !strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v1/callbacks/") {
			continue
		}
		contentType := wire.TypeJSON
		if strings.HasSuffix(path, ":import") || strings.HasSuffix(path, ":batch") {
			contentType = wire.TypeNDJSON
		}
		for query, at := range map[string]string{"?dry-run=true": "dry-run", "?=": "", "?%zz": "query", "?a&a": "a"} {
			r := d.send(method, path+query, "{}", "Content-Type", contentType, "If-Match", `"1.0"`)
			p := requireProblem(t, r, http.StatusBadRequest, wire.InputInvalid)
			require.Len(t, p.Errors, 1)
			require.Equal(t, at, p.Errors[0].Parameter, "%s%s", pattern, query)
		}
	}
	for _, query := range []string{"?dry_run=false&dry_run=true", "?dry_run=true;x=1"} {
		requireProblem(t, d.importLines(query, `{"key":"default/charge/1","outcome":"succeeded"}`), http.StatusBadRequest, wire.InputInvalid)
	}
	require.Equal(t, before, d.fake.Snapshot(), "nothing has changed")
	require.Equal(t, http.StatusOK, d.get("/v1/flights?").status, "an empty query")
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
