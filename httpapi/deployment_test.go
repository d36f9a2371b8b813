package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// A caller whose addresses lead to two deployments would perform the effect once in each of them.
func TestOtherDeploymentIsRejected(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) {
		c.About.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("# none")) })
	})
	deployment := decodeBody[wire.Version](t, d.get("/version", "Flightd-Deployment", "another")).Deployment
	require.NotEmpty(t, deployment)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	before := d.fake.Snapshot()
	path := "/v1/flights/" + a.FlightID
	for _, ask := range []struct{ method, path, body string }{
		{"POST", "/v1/flights:open", `{"action":"charge","id":"2"}`},
		{"POST", "/v1/flights:open", `{`},
		{"POST", "/v1/flights:abandon", `{"action":"charge","id":"1","nonce":"n","not_after":1}`},
		{"POST", path + "/report", `{"fencing_token":"` + a.FencingToken + `","key":"` + a.Key + `","outcome":"succeeded"}`},
		{"POST", path + "/report?colour=red", `{}`},
		{"POST", path + "/cancel", `{"reason":"x"}`},
		{"POST", "/v1/sessions", `{}`},
		{"POST", "/v1/sessions/ses_1/renew", `{}`},
		{"GET", path, ""}, {"GET", path + "/receipt", ""}, {"GET", path + "/input", ""}, {"GET", path + "/events", ""},
		{"GET", "/v1/flights", ""}, {"GET", "/v1/events", ""}, {"GET", "/openapi.json", ""},
	} {
		r := d.send(ask.method, ask.path, ask.body, "Flightd-Deployment", "another")
		p := requireProblem(t, r, http.StatusMisdirectedRequest, wire.WrongDeployment)
		require.False(t, p.Retryable)
		require.Equal(t, `the request names deployment "another", but this server belongs to "`+deployment+`"`, p.Detail)
		require.Contains(t, p.Hint, "use the address of one deployment only, or start a new client")
		require.Empty(t, p.State, "this ledger does not have the flight")
		if strings.HasPrefix(ask.path, path) {
			require.Equal(t, a.FlightID, p.FlightID)
		}
	}
	require.Equal(t, before, d.fake.Snapshot())
	for _, open := range []string{"/livez", "/readyz", "/version", "/metrics"} {
		require.Equal(t, http.StatusOK, d.get(open, "Flightd-Deployment", "another").status, open)
	}
	require.Equal(t, http.StatusOK, d.get(path, "Flightd-Deployment", deployment).status)
	require.Equal(t, http.StatusOK, d.get(path).status, "the header is optional")
}

// A caller that was told a later position has seen entries that this ledger has lost.
func TestLedgerOlderThanTheCallerKnowsIsRejected(t *testing.T) {
	var reported []wire.Index
	d := newTestServer(t, func(c *httpapi.Config) {
		c.Cluster.LedgerBehind = func(_ context.Context, position wire.Index) (bool, error) {
			reported = append(reported, position)
			return true, nil
		}
	})
	deployment := decodeBody[wire.Version](t, d.get("/version")).Deployment
	position := d.get("/v1/flights").header.Get("Flightd-Index")
	has, err := wire.ParseIndex(position)
	require.NoError(t, err)
	later := wire.Index{Epoch: has.Epoch, Entry: has.Entry + 1000}
	const open = `{"action":"charge","id":"1"}`
	r := d.post("/v1/flights:open", open, "Flightd-Deployment", deployment, "Flightd-Index", later.String())
	p := requireProblem(t, r, http.StatusServiceUnavailable, wire.LedgerBehind)
	require.Contains(t, p.Detail, later.String())
	require.Equal(t, []wire.Index{later}, reported)
	r = d.post("/v1/flights:open", open, "Flightd-Deployment", deployment, "Flightd-Index", wire.Index{Epoch: has.Epoch + 1}.String())
	requireProblem(t, r, http.StatusServiceUnavailable, wire.LedgerBehind)
	r = d.post("/v1/flights:open", open, "Flightd-Deployment", deployment, "Flightd-Index", "soon")
	requireProblem(t, r, http.StatusBadRequest, wire.InputInvalid)
	require.Zero(t, d.fake.Snapshot())

	// A position of this ledger, of an earlier epoch, or of an unnamed deployment says nothing against it.
	require.Equal(t, http.StatusOK, d.get("/v1/flights", "Flightd-Deployment", deployment, "Flightd-Index", position).status)
	require.Equal(t, http.StatusOK, d.get("/v1/flights", "Flightd-Deployment", deployment, "Flightd-Index", "0-99999").status)
	require.Equal(t, http.StatusOK, d.get("/v1/flights", "Flightd-Index", later.String()).status)
	require.Len(t, reported, 2)
}

// Each problem of an open, an abandon or a report names its flight. A client ignores answers that do not.
func TestProblemsOfRequestsNameTheirFlight(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	post := func(path, body string, header ...string) {
		t.Helper()
		p := decodeBody[wire.Problem](t, d.post(path, body, header...))
		require.Equal(t, []string{a.FlightID, "running"}, []string{p.FlightID, p.State}, "%s %s: %s", path, body, p.Code)
	}
	for _, more := range []string{`"ttl_ms":1`, `"retention":"for ever"`, `"recovery":"resend","fingerprint":"x"`, `"not_after":5`} {
		post("/v1/flights:open", `{"action":"charge","id":"1",`+more+`}`)
	}
	post("/v1/flights:open", `{"action":"charge","id":"1"}`, "Idempotency-Key", "2")
	post("/v1/flights:abandon", `{"action":"charge","id":"1"}`)
	post("/v1/flights:abandon", `{"action":"charge","id":"1","nonce":"n"}`)
	for _, body := range []string{``, `[`, `{}`, `{"fencing_token":"x","outcome":"y"}`, `{"fencing_token":"x","outcome":"succeeded"}`,
		`{"fencing_token":"` + a.FencingToken + `","outcome":"succeeded","key":"a/b/c"}`, `{"fencing_token":"` + a.FencingToken + `","outcome":"succeeded","key":"a"}`} {
		post("/v1/flights/"+a.FlightID+"/report", body)
	}
	post("/v1/flights/"+a.FlightID+"/report", strings.Repeat(" ", wire.MaxReportBody+1))
	post("/v1/flights/"+a.FlightID+"/report?x=y", `{}`)
	post("/v1/flights/"+a.FlightID+"/report", `{}`, "Content-Type", "text/plain")
	post("/v1/flights/"+a.FlightID+"/verification", `{}`)
}

// An incomplete report is retryable: it must not look like a final rejection, because the complete report may be
// accepted.
func TestReport_IncompleteBodyIsRetryable(t *testing.T) {
	d := newTestServer(t)
	a := d.proceed(`{"action":"charge","id":"1"}`)
	p := requireProblem(t, d.postPart("/v1/flights/"+a.FlightID+"/report", `{"fencing_token":`), http.StatusRequestTimeout, wire.RequestIncomplete)
	require.True(t, p.Retryable)
	require.Equal(t, a.FlightID, p.FlightID)
}

// postPart sends the beginning of a request and closes the sending side of the connection.
func (ts *testServer) postPart(path, body string) reply {
	ts.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(ts.url, "http://"))
	require.NoError(ts.t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n%s", path, body)
	require.NoError(ts.t, err)
	require.NoError(ts.t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(ts.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(ts.t, err)
	return reply{status: resp.StatusCode, header: resp.Header, body: data}
}
