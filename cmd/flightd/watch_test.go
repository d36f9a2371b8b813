package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/node"
)

// TestCLI_TraceOfTheEnvironmentIsPassedOn: whoever calls the program inside a trace finds its requests there.
func TestCLI_TraceOfTheEnvironmentIsPassedOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	api := httpapi.New(httpapitest.New(t).Config())
	var mu sync.Mutex
	seen := make(map[string]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.URL.Path] = r.Header.Get("traceparent")
		mu.Unlock()
		api.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, trace := range []string{parent, ""} {
		env := map[string]string{"FLIGHTD_ADDR": server.URL, "TRACEPARENT": trace, "XDG_STATE_HOME": t.TempDir()}
		if r := cli(env, "flights", "ls"); r.code != 0 {
			t.Fatalf("flights ls: %v", r)
		}
		mu.Lock()
		if got := seen["/v1/flights"]; got != trace {
			t.Errorf("passed on: %q, want %q", got, trace)
		}
		mu.Unlock()
	}
}

// TestDev_MetricsOnAnAddressOfTheirOwn and on that of the API.
func TestDev_MetricsOnAnAddressOfTheirOwn(t *testing.T) {
	s := startServer(t)
	s.kill()
	apart := freeAddress(t)
	s.start("FLIGHTD_LISTEN_METRICS="+apart, "FLIGHTD_LOG_FORMAT=json", "FLIGHTD_LOG_LEVEL=debug")
	if r := s.flightd("exec", "--key", "pay/1", "--", "true"); r.code != 0 {
		t.Fatalf("exec: %v", r)
	}
	for _, url := range []string{s.url() + "/metrics", "http://" + apart + "/metrics"} {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !strings.Contains(string(text), `flightd_effects_total{action="pay",outcome="succeeded"} 1`) {
			t.Errorf("%s: %d %.300s (%v)", url, answer.StatusCode, text, err)
		}
	}
}

// TestWelcomeTellsWhereMetricsAre, where they are apart.
func TestWelcomeTellsWhereMetricsAre(t *testing.T) {
	for metrics, want := range map[string]string{"": "", "http://127.0.0.1:9464": "http://127.0.0.1:9464/metrics"} {
		var out, talk bytes.Buffer
		(&app{terminal: terminal{out: &out, err: &talk}}).welcome(node.Ready{URL: defaultServer, Data: "/d", Metrics: metrics})
		if out.String() != defaultServer+"\n" {
			t.Errorf("data: %q", out.String())
		}
		if !strings.Contains(talk.String(), want) || want == "" && strings.Contains(talk.String(), "/metrics") {
			t.Errorf("with metrics at %q: %s", metrics, talk.String())
		}
	}
}
