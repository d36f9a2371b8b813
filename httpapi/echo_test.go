package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// TestEcho: every answer repeats the value of its request, also problems, streams, and answers without a body.
func TestEcho(t *testing.T) {
	d := newTestServer(t)
	path := "/v1/flights/" + d.proceed(`{"action":"charge","id":"1"}`).FlightID
	etag := d.get(path).header.Get("ETag")
	for _, ask := range []struct {
		method, path, body string
		headers            []string
		status             int
	}{
		{"GET", path, "", nil, http.StatusOK},
		{"GET", path, "", []string{"If-None-Match", etag}, http.StatusNotModified},
		{"GET", path + "/receipt", "", nil, http.StatusNotFound},
		{"GET", "/v1/flights/" + flight.MustKey("default/charge/2").FlightID().String(), "", nil, http.StatusNotFound},
		{"POST", "/v1/flights:open", "{", nil, http.StatusBadRequest},
		{"POST", "/v1/flights:batch", `{"open":{}}`, []string{"Content-Type", wire.TypeNDJSON}, http.StatusOK},
		{"GET", "/nothing", "", nil, http.StatusNotFound},
		{"PUT", "/v1/flights:open", "", nil, http.StatusMethodNotAllowed},
		{"GET", "/livez", "", nil, http.StatusOK},
		{"GET", "/openapi.json", "", nil, http.StatusOK},
		{"GET", path, "", []string{"Flightd-Deployment", "another"}, http.StatusMisdirectedRequest},
	} {
		r := d.send(ask.method, ask.path, ask.body, append(ask.headers, wire.HeaderEcho, "V4lue")...)
		require.Equal(t, ask.status, r.status, "%s %s: %s", ask.method, ask.path, r.body)
		require.Equal(t, []string{"V4lue"}, r.header[wire.HeaderEcho], "%s %s", ask.method, ask.path)
	}
	require.Empty(t, d.get(path).header[wire.HeaderEcho])
	for _, bad := range []string{"", strings.Repeat("x", 65)} {
		r := d.send("GET", path, "", wire.HeaderEcho, bad)
		p := requireProblem(t, r, http.StatusBadRequest, wire.InputInvalid)
		require.Equal(t, wire.HeaderEcho, p.Errors[0].Header)
		require.Empty(t, r.header[wire.HeaderEcho])
	}

	// The handlers in front of the routes, and an answer that a problem replaces.
	cfg := httpapitest.New(t).Config()
	cfg.Cluster.ReplaceAnswer = func(_ context.Context, _ int, _ bool) wire.Code { return wire.LeaderLost }
	handlers := map[string]http.Handler{"starting": httpapi.Starting(), "loopback": httpapi.LoopbackOnly(nil), "replaced": httpapi.New(cfg)}
	for name, h := range handlers {
		r := httptest.NewRequest(http.MethodGet, "http://example.com"+path, nil)
		r.Header.Set(wire.HeaderEcho, "V4lue")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		require.GreaterOrEqual(t, answer.Code, http.StatusForbidden, name)
		require.Equal(t, []string{"V4lue"}, answer.Header()[wire.HeaderEcho], name)
	}
}
