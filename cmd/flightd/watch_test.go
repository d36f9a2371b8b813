package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// TestCLI_TraceOfTheEnvironmentIsPassedOn: requests carry the trace context of TRACEPARENT.
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
		r := flightd(env, "flights", "ls")
		require.Equal(t, 0, r.code, "flights ls: %v", r)
		mu.Lock()
		got := seen["/v1/flights"]
		require.Equal(t, trace, got, "passed on: %q, want %q", got, trace)
		mu.Unlock()
	}
}

// TestBanner_ExampleWhileTheLedgerIsEmpty: its commands run without a conflict, and its key is not one of the README's.
func TestBanner_ExampleWhileTheLedgerIsEmpty(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	banner := func() string { // complete once the node has stopped
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, s.cmd.Wait())
		s.cmd = nil
		require.Contains(t, s.log.String(), "is ready after")
		return s.log.String()
	}
	var commands []string
	for line := range strings.Lines(banner()) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "flightd "); ok && strings.Contains(command, "first-try") {
			commands = append(commands, "'"+program+"' "+command)
		}
	}
	require.Len(t, commands, 3)
	s.start()
	r := s.beginCommand("/bin/sh", "-ec", strings.Join(commands, "\n")).wait()
	require.Zero(t, r.code, "%v", r)
	lines := strings.Split(r.out, "\n")
	require.True(t, strings.HasPrefix(lines[0], "paid by "), "%v", r)
	require.Equal(t, lines[:2], lines[2:4], "the second command replays the first")
	require.Contains(t, r.out, "now: succeeded")
	_ = banner()
	s.start()
	require.NotContains(t, banner(), "first-try", "the ledger has a flight")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.NotContains(t, string(readme), "--key first-try")
}
