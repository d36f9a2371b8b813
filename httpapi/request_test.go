package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + trace + "-b7ad6b7169203331-01"
)

// logBuffer is a log that tests read.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (lb *logBuffer) Write(b []byte) (int, error) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.text.Write(b)
}

// lines returns the log entries since the last call.
func (lb *logBuffer) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for line := range strings.Lines(lb.text.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		all = append(all, entry)
	}
	lb.text.Reset()
	return all
}

func withLog(level slog.Level) (*logBuffer, func(*httpapi.Config)) {
	j := new(logBuffer)
	return j, func(c *httpapi.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: level}))
	}
}

func TestProblemsSayWhichRequestAndTrace(t *testing.T) {
	d := newTestServer(t)
	r := d.post("/v1/flights:open", `{"action":1}`, "X-Request-Id", "mine-1", "traceparent", parent)
	p := decodeBody[wire.Problem](t, r)
	require.Equal(t, "mine-1", p.RequestID)
	require.Equal(t, trace, p.TraceID)
	require.Equal(t, "mine-1", r.header.Get("X-Request-Id"))
	for _, bad := range []string{"", "00-zz", strings.ToUpper(parent), parent + "0"} {
		p = decodeBody[wire.Problem](t, d.post("/v1/flights:open", `{"action":1}`, "traceparent", bad))
		require.Empty(t, p.TraceID, bad)
		require.NotEmpty(t, p.RequestID)
	}
}

// TestRefusalsAreLoggedWithKey: each log entry about a flight has its key, whether the path or the body names the
// flight.
func TestRefusalsAreLoggedWithKey(t *testing.T) {
	j, log := withLog(slog.LevelDebug)
	d := newTestServer(t, log)
	opened := d.proceed(`{"action":"charge","id":"1","input":{"a":1}}`)
	require.Empty(t, j.lines(t), "successful requests are not logged")
	flightPath := "/v1/flights/" + opened.FlightID
	for name, send := range map[string]func() reply{
		"the body names it": func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"1","input":{"a":2}}`, "traceparent", parent)
		},
		"the path names it":           func() reply { return d.post(flightPath+"/report", `{"outcome":"maybe"}`, "traceparent", parent) },
		"a receipt that is not there": func() reply { return d.get(flightPath+"/receipt", "traceparent", parent) },
		"a decision at another version": func() reply {
			return d.post(flightPath+"/cancel", `{"reason":"r"}`, "If-Match", `"1.77"`, "traceparent", parent)
		},
		"a token that is another flight's": func() reply {
			return d.post(flightPath+"/report", `{"fencing_token":"x","outcome":"succeeded"}`, "traceparent", parent)
		},
		"the body names it, and must wait": func() reply {
			return d.post("/v1/flights:open", `{"action":"charge","id":"1","input":{"a":1},"wait_ms":0}`, "traceparent", parent)
		},
	} {
		r := send()
		require.GreaterOrEqual(t, r.status, 400, name)
		lines := j.lines(t)
		require.Len(t, lines, 1, name)
		line := lines[0]
		require.Equal(t, "default/charge/1", line["key"], name)
		require.Equal(t, trace, line["trace_id"], name)
		require.Equal(t, r.header.Get("X-Request-Id"), line["request_id"], name)
		require.Equal(t, "DEBUG", line["level"], name)
		require.EqualValues(t, r.status, line["status"], name)
	}
}

// TestFailuresAreLoggedAsErrors: at level info only internal errors are logged.
func TestFailuresAreLoggedAsErrors(t *testing.T) {
	j, log := withLog(slog.LevelInfo)
	d := newTestServer(t, log)
	d.post("/v1/flights:open", `{"action":1}`)
	require.Empty(t, j.lines(t))
	d.fake.SetFaults(func(l *httpapitest.Faults) {
		l.Before = func(context.Context, string) error { return errors.New("disk failure") }
	})
	r := d.post("/v1/flights:open", `{"action":"charge","id":"1"}`, "X-Request-Id", "mine-2")
	requireProblem(t, r, http.StatusInternalServerError, wire.Internal)
	lines := j.lines(t)
	require.Len(t, lines, 1)
	require.Equal(t, "default/charge/1", lines[0]["key"])
	require.Equal(t, "mine-2", lines[0]["request_id"])
	require.Equal(t, "ERROR", lines[0]["level"])
	require.Equal(t, "disk failure", lines[0]["error"])
	require.NotContains(t, string(r.body), "disk failure", "the cause is only in the log")
}

// TestStartingIsAProblem: a starting node answers with a complete problem, too.
func TestStartingIsAProblem(t *testing.T) {
	d := newTestServer(t)
	w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/flights", nil)
	req.Header.Set("X-Request-Id", "mine-3")
	req.Header.Set("traceparent", parent)
	httpapi.Starting().ServeHTTP(w, req)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	var p wire.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, wire.NoLeader, p.Code)
	require.Equal(t, "mine-3", p.RequestID)
	require.Equal(t, trace, p.TraceID)
	require.True(t, p.Retryable)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusNotFound, d.get("/metrics").status, "without Config.Metrics the path does not exist")
}

func TestMetricsAreServedWhereThereAreAny(t *testing.T) {
	d := newTestServer(t, func(c *httpapi.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.Path)) })
	})
	require.Equal(t, "/metrics", string(d.get("/metrics").body))
	require.Equal(t, "/metrics/etcd", string(d.get("/metrics/etcd").body))
	require.Equal(t, "/metrics/raft", string(d.get("/metrics/raft").body))
	requireProblem(t, d.get("/metrics/other"), http.StatusNotFound, wire.NotFound)
	requireProblem(t, d.post("/metrics", "{}"), http.StatusMethodNotAllowed, wire.MethodNotAllowed)
}
