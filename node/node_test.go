package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// runningNode is a node that was started by Run.
type runningNode struct {
	t    *testing.T
	url  string
	stop context.CancelFunc
	done chan error
}

// startNode starts a node on data. The node is stopped when the test ends, if not before.
func startNode(t *testing.T, data string) *runningNode {
	t.Helper()
	return startNodeWith(t, data, func(*Config) {})
}

// initNew makes the ledger of a node that must not make one itself, unless there is one.
func initNew(t *testing.T, cfg Config) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(cfg.Data, "ledger")); err != nil && !cfg.NoCredentials {
		_, err := Init(t.Context(), cfg)
		require.NoError(t, err)
	}
}

func startNodeWith(t *testing.T, data string, change func(*Config)) *runningNode {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &runningNode{t: t, stop: cancel, done: make(chan error, 1)}
	ready := make(chan Ready, 1)
	cfg := Dev(data, "127.0.0.1:0")
	cfg.Ready = func(r Ready) { ready <- r }
	change(&cfg)
	initNew(t, cfg)
	go func() { l.done <- Run(ctx, cfg) }()
	select {
	case r := <-ready:
		l.url = r.URL
	case err := <-l.done:
		cancel()
		t.Fatalf("the node did not start: %v", err)
	}
	t.Cleanup(func() {
		if l.stop != nil {
			l.end()
		}
	})
	return l
}

// end stops the node by canceling its context.
func (n *runningNode) end() {
	n.t.Helper()
	n.stop()
	n.stop = nil
	err := <-n.done
	require.NoError(n.t, err, "the node ended with %v", err)
}

func (n *runningNode) status(path string) int {
	n.t.Helper()
	answer, err := http.Get(n.url + path)
	require.NoError(n.t, err)
	_ = answer.Body.Close()
	return answer.StatusCode
}

func TestNodeLeavesNothingBehind(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		l := startNode(t, data)
		got := l.status("/readyz")
		require.Equal(t, http.StatusOK, got, "/readyz answers %d", got)
		start := time.Now()
		l.end()
		t.Logf("stopped in %v", time.Since(start))
	}
	http.DefaultClient.CloseIdleConnections()
	goleak.VerifyNone(t)
}

func TestSecondNodeOnSameDataIsRefused(t *testing.T) {
	data := t.TempDir()
	startNode(t, data)
	var locked *LockedError
	err := Run(t.Context(), Dev(data, "127.0.0.1:0"))
	require.ErrorAs(t, err, &locked, "got %v", err)
}

func TestStartFailsCleanly(t *testing.T) {
	data := t.TempDir()
	err := os.WriteFile(filepath.Join(data, "etcd"), nil, 0o600)
	require.NoError(t, err)
	require.Error(t, Run(t.Context(), Dev(data, "127.0.0.1:0")), "a node without an etcd has started")
	lock, err := lockData(data)
	require.NoError(t, err, "the failed start still locks its data: %v", err)
	_ = lock.Close()
	goleak.VerifyNone(t)
}

// The API does not authenticate its callers, so it must reject every request that a web page can send.
func TestNodeRefusesWebPages(t *testing.T) {
	l := startNode(t, t.TempDir())
	for name, change := range map[string]func(*http.Request){
		"another origin":  func(r *http.Request) { r.Header.Set("Origin", "https://example.org") },
		"a rebound name":  func(r *http.Request) { r.Host = "example.org" },
		"a form":          func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"a valid request": func(*http.Request) {},
	} {
		req, err := http.NewRequest(http.MethodPost, l.url+"/v1/sessions", strings.NewReader(`{}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		change(req)
		answer, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_ = answer.Body.Close()
		want, rejected := map[string]int{
			"another origin": http.StatusForbidden, "a rebound name": http.StatusForbidden, "a form": http.StatusUnsupportedMediaType,
		}[name]
		require.False(t, rejected && answer.StatusCode != want, "%s: %d", name, answer.StatusCode)
		require.False(t, !rejected && answer.StatusCode >= 400, "%s: %d", name, answer.StatusCode)
	}
}
