package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testServer is a server over an in-memory flightd, with a plain HTTP client.
type testServer struct {
	t    *testing.T
	fake *httpapitest.Fake
	url  string

	notAfter map[string]flight.Time // by nonce
}

func newTestServer(t *testing.T, change ...func(*httpapi.Config)) *testServer {
	t.Helper()
	world := httpapitest.New(t)
	cfg := world.Config()
	for _, c := range change {
		c(&cfg)
	}
	return serve(t, world, cfg)
}

func serve(t *testing.T, world *httpapitest.Fake, cfg httpapi.Config) *testServer {
	t.Helper()
	server := httptest.NewServer(checker(t).Watch(httpapi.New(cfg), func(err error) { t.Errorf("not as documented: %v", err) }))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &testServer{t: t, fake: world, url: server.URL}
}

// reply is a complete answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (ts *testServer) send(method, path, body string, header ...string) reply {
	ts.t.Helper()
	req, err := http.NewRequest(method, ts.url+path, bytes.NewReader([]byte(body)))
	require.NoError(ts.t, err)
	if method == http.MethodPost || method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		if first := header[i]; strings.HasPrefix(first, "+") { // one more header of this name
			req.Header[http.CanonicalHeaderKey(first[1:])] = append(req.Header[http.CanonicalHeaderKey(first[1:])], header[i+1])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	require.NoError(ts.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(ts.t, err)
	if !strings.HasPrefix(path, "/metrics") { // metrics are not part of the API
		requireLedgerTime(ts.t, resp.Header)
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: data}
}

// requireLedgerTime checks that an answer carries the ledger's time.
func requireLedgerTime(t *testing.T, h http.Header) {
	t.Helper()
	at, err := strconv.ParseInt(h.Get("Flightd-Ledger-Time"), 10, 64)
	require.NoError(t, err)
	require.InDelta(t, time.Now().UnixMilli(), at, float64(time.Hour.Milliseconds()))
}

func (ts *testServer) post(path, body string, header ...string) reply {
	ts.t.Helper()
	return ts.send(http.MethodPost, path, body, header...)
}

func (ts *testServer) get(path string, header ...string) reply {
	ts.t.Helper()
	return ts.send(http.MethodGet, path, "", header...)
}

func decodeBody[T any](t *testing.T, r reply) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(r.body, &v), "%s", r.body)
	return v
}

// proceed sends an open and requires the answer proceed.
func (ts *testServer) proceed(body string) wire.OpenAnswer {
	ts.t.Helper()
	r := ts.post("/v1/flights:open", body)
	require.Equal(ts.t, http.StatusCreated, r.status, "%s", r.body)
	a := decodeBody[wire.OpenAnswer](ts.t, r)
	require.Equal(ts.t, wire.DecisionProceed, a.Decision)
	return a
}

func (ts *testServer) report(a wire.OpenAnswer, rest string) reply {
	ts.t.Helper()
	return ts.post("/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+a.FencingToken+`","key":"`+a.Key+`",`+rest+`}`)
}

// openInDoubt opens a flight, reports unknown and returns the ETag of the flight in doubt.
func (ts *testServer) openInDoubt(id string) (a wire.OpenAnswer, etag string) {
	ts.t.Helper()
	a = ts.proceed(`{"action":"charge","id":"` + id + `"}`)
	r := ts.report(a, `"outcome":"unknown","error":"connection lost"`)
	require.Equal(ts.t, http.StatusOK, r.status, "%s", r.body)
	require.Equal(ts.t, "in_doubt", r.header.Get("Flightd-State"))
	return a, r.header.Get("ETag")
}

func requireProblem(t *testing.T, r reply, status int, code wire.Code) wire.Problem {
	t.Helper()
	p := decodeBody[wire.Problem](t, r)
	require.Equal(t, code, p.Code, "%s", r.body)
	require.Equal(t, status, r.status, "%s", r.body)
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	require.Equal(t, "/problems/"+string(code), p.Type)
	require.Equal(t, status, p.Status)
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Hint)
	require.Equal(t, r.header.Get("X-Request-Id"), p.RequestID)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	return p
}

// newSession creates a session and returns the answer and the session's path.
func (ts *testServer) newSession() (s wire.SessionAnswer, path string) {
	ts.t.Helper()
	r := ts.post("/v1/sessions", `{"ttl_ms":15000,"owner":"me"}`)
	require.Equal(ts.t, http.StatusCreated, r.status, "%s", r.body)
	s = decodeBody[wire.SessionAnswer](ts.t, r)
	return s, "/v1/sessions/" + s.Session
}
