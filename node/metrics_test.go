package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/cert"
)

// monitoredNode starts a node with ListenMetrics and executes one flight.
func monitoredNode(t *testing.T, change ...func(*Config)) Ready {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Listen.Metrics, cfg.Process.Version, cfg.Process.Dedicated = "127.0.0.1:0", "1.2.3", true
	for _, c := range change {
		c(&cfg)
	}
	ready, done := make(chan Ready, 1), make(chan error, 1)
	cfg.Ready = func(r Ready) { ready <- r }
	initNew(t, cfg)
	go func() { done <- Run(ctx, cfg) }()
	t.Cleanup(func() {
		cancel()
		err := <-done
		require.NoError(t, err, "the node ended with %v", err)
		http.DefaultClient.CloseIdleConnections()
	})
	select {
	case r := <-ready:
		call := effect.Call{Key: flight.MustKey("default/charge/order-1")}
		_, err := r.Executor.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, nil })
		require.NoError(t, err)
		return r
	case err := <-done:
		done <- nil
		t.Fatalf("the node did not start: %v", err)
	}
	return Ready{}
}

func body(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", url, b)
	return string(b)
}

// exported returns the names of the exported metrics, including the suffixes of histograms.
func exported(text string) map[string]bool {
	names := make(map[string]bool)
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		name, kind, _ := strings.Cut(strings.TrimSpace(rest), " ")
		names[name] = true
		if kind == "histogram" {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
		}
	}
	return names
}

// named returns the names of metrics in a text.
func named(text string) []string {
	all := regexp.MustCompile(`\b(flightd|process|go)_[a-z_]*[a-z]\b`).FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// All metrics named in alert rules, dashboard and documentation are exported by a running node, all exported ones are in the table of
// docs/monitoring.md, and the end of the certificate is one of them.
func TestEveryNamedMetricIsExported(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.write(1)
	r := monitoredNode(t, func(c *Config) { c.Listen.TLS = a.files() })
	require.True(t, strings.HasPrefix(r.URL, "https://"))
	text := body(t, r.Metrics+"/metrics")
	shown := exported(text)
	for file, most := range map[string]int{
		"../deploy/prometheus/alerts.yml": 12, "../deploy/grafana/flightd.json": 30, "../docs/monitoring.md": 40,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := named(strings.NewReplacer("go_version", "", "flightd_etcd_*", "", "flightd_raft_*", "", "flightd_build_info, job", "").Replace(string(text)))
		require.Greater(t, len(names), most, file)
		for _, name := range names {
			require.True(t, shown[name], "%s names %s, which is not exported", file, name)
		}
	}
	document, err := os.ReadFile("../docs/monitoring.md")
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE flightd_"); ok {
			name, _, _ := strings.Cut(rest, " ")
			require.Contains(t, string(document), "\n| `flightd_"+name+"` |")
		}
	}
	file, err := os.ReadFile(a.path("cert.pem"))
	require.NoError(t, err)
	chain, err := cert.Parse(file)
	require.NoError(t, err)
	require.Contains(t, text, "\nflightd_tls_certificate_expiry_timestamp_seconds "+strconv.FormatFloat(float64(chain[0].NotAfter.Unix()), 'g', -1, 64)+"\n")
}

// A node that requires tokens serves metrics and health at its second address to other machines, too, and metrics
// nowhere else. Neither address lets a web page of another origin read an answer.
func TestMonitoringWithCredentials(t *testing.T) {
	t.Parallel()
	r := monitoredNode(t, func(c *Config) { c.NoCredentials, c.FirstToken.Print = false, func(string) {} })
	for _, path := range []string{"/metrics", "/metrics/etcd", "/metrics/raft", "/livez", "/readyz", "/problems/in_doubt"} {
		for _, base := range []string{r.Metrics, r.URL} {
			req, err := http.NewRequest(http.MethodGet, base+path, nil)
			require.NoError(t, err)
			req.Host = "flightd.example:9464"
			req.Header.Set("Origin", "https://elsewhere.example")
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if base == r.Metrics || path == "/problems/in_doubt" {
				require.Equal(t, http.StatusOK, resp.StatusCode, base+path)
			}
			if base == r.URL && strings.HasPrefix(path, "/metrics") {
				require.GreaterOrEqual(t, resp.StatusCode, 400, path)
			}
			for name := range resp.Header {
				require.NotContains(t, name, "Access-Control")
			}
		}
	}
}

// It is not parallel: the raft library reports to one node of the process, the last one that has begun to collect its metrics.
func TestMetricsOfALivingNode(t *testing.T) {
	r := monitoredNode(t)
	for _, base := range []string{r.URL, r.Metrics} {
		ours := body(t, base+"/metrics")
		for _, line := range []string{
			`flightd_calls_total{action="charge",result="executed"} 1`, `flightd_effects_total{action="charge",outcome="succeeded"} 1`,
			"flightd_attempts_total 1", "flightd_receipts_stored 1", "flightd_raft_leading 1", "flightd_in_doubt 0",
			`flightd_flights{state="succeeded"} 1`, "flightd_lease_acquire_duration_seconds_count 1", "flightd_lease_ttl_seconds 15",
		} {
			require.Contains(t, ours, line+"\n")
		}
		require.Contains(t, ours, `version="1.2.3"} 1`)
		require.NotContains(t, ours, "\netcd_")
		etcds := body(t, base+"/metrics/etcd")
		require.Contains(t, etcds, "\netcd_mvcc_db_total_size_in_bytes ")
		require.NotContains(t, etcds, "\nflightd_")
		rafts := body(t, base+"/metrics/raft")
		require.Regexp(t, `(?m)^raft_apply_total [1-9]`, rafts)
		require.Regexp(t, `(?m)^raft_leader_dispatchlog_count [1-9]`, rafts)
		require.NotContains(t, rafts+ours, "\nflightd_raft_apply_total")
		require.Equal(t, "ok\n", body(t, base+"/livez"))
		require.Contains(t, body(t, base+"/readyz?verbose"), `"ledger"`)
	}
}

// The metrics address serves metrics and health only.
func TestMetricsAddressHasNothingElse(t *testing.T) {
	t.Parallel()
	r := monitoredNode(t)
	ask := func(method, path, host string) (*http.Response, wire.Problem) {
		req, err := http.NewRequest(method, r.Metrics+path, nil)
		require.NoError(t, err)
		req.Host = host
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer answer.Body.Close()
		var p wire.Problem
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&p), "%s %s", method, path)
		require.Equal(t, wire.TypeProblem, answer.Header.Get("Content-Type"))
		require.Equal(t, answer.Header.Get("X-Request-Id"), p.RequestID)
		require.NotEmpty(t, p.RequestID)
		require.Equal(t, answer.StatusCode, p.Status)
		require.Contains(t, body(t, r.Metrics+p.Type), string(p.Code), "its type links to a page of the same server")
		return answer, p
	}
	for _, path := range []string{"/v1/flights", "/v1/sessions", "/", "/metrics/other", "/metrics/", "//metrics", "/openapi.json"} {
		_, p := ask(http.MethodGet, path, "")
		require.Equal(t, wire.NotFound, p.Code, path)
	}
	_, p := ask(http.MethodGet, "/metrics", "example.org")
	require.Equal(t, wire.Forbidden, p.Code, "a name that was rebound to this machine")
	answer, p := ask(http.MethodOptions, "/metrics", "")
	require.Equal(t, wire.MethodNotAllowed, p.Code)
	require.Equal(t, "GET, HEAD", answer.Header.Get("Allow"))
}

func TestMetricsAddressIsLoopback(t *testing.T) {
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Listen.Metrics = "0.0.0.0:9464"
	var invalid *flight.InvalidError
	require.ErrorAs(t, Run(t.Context(), cfg), &invalid)
	require.Equal(t, "listen_metrics", invalid.Field)
}

// Scrapes during a stop are answered and do not disturb it.
func TestScrapesDuringAStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Listen.Metrics = "127.0.0.1:0"
	ready, done := make(chan Ready, 1), make(chan error, 1)
	cfg.Ready = func(r Ready) { ready <- r }
	go func() { done <- Run(ctx, cfg) }()
	r := <-ready
	_, err := r.Executor.Do(t.Context(), effect.Call{Key: flight.MustKey("default/charge/doubtful")},
		func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, errors.New("the connection broke")
		})
	require.Error(t, err)
	require.Contains(t, body(t, r.Metrics+"/metrics"), "\nflightd_in_doubt 1\n", "so that a scrape reads flights, too")
	first, scraped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for answer, err := http.Get(r.Metrics + "/metrics"); err == nil; answer, err = http.Get(r.Metrics + "/metrics") {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if n++; n == 1 {
				close(first)
			}
		}
		scraped <- n
	}()
	<-first
	cancel()
	require.NoError(t, <-done)
	t.Logf("%d scrapes until it was gone", <-scraped)
	http.DefaultClient.CloseIdleConnections()
}

// Each alert has tests for promtool and a section in the documentation.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	tests, document := read("../deploy/prometheus/alerts_test.yml"), read("../docs/monitoring.md")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read("../deploy/prometheus/alerts.yml"), -1)
	require.Greater(t, len(alerts), 10)
	for _, a := range alerts {
		require.Contains(t, document, "`"+a[1]+"`", "what to do")
		require.Regexp(t, `alertname: `+a[1]+`\n +exp_alerts|alertname="`+a[1]+`"`, tests, "no test that it fires")
		require.Regexp(t, `alertname: `+a[1]+`\}|alertname="`+a[1]+`"`, tests, "no test that it does not fire")
	}
}

// The dashboard can be imported, and its panels do not overlap.
func TestDashboardIsWhole(t *testing.T) {
	text, err := os.ReadFile("../deploy/grafana/flightd.json")
	require.NoError(t, err)
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.Equal(t, "flightd", board.UID)
	taken, ids := make(map[[2]int]string), make(map[int]bool)
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], "%s: duplicate id", p.Title)
		ids[p.ID] = true
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s overlaps another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
				require.Less(t, x, 24)
			}
		}
	}
}
