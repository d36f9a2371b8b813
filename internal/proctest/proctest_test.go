package proctest

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Log: filepath.Join(t.TempDir(), "log")}
}

// A process is ready when a line says so; lines that come before, and after, are passed on.
func TestRun(t *testing.T) {
	spec := shell(t, "echo begins; echo ready; echo said >&2; while read -r line; do echo got $line; done")
	lines := make(chan string, 10)
	spec.Line, spec.Ready = func(line string) { lines <- line }, func(line string) bool { return line == "ready" }
	p := Run(t, spec)
	require.Equal(t, "begins", <-lines)
	require.Equal(t, "ready", <-lines)
	require.NoError(t, p.WriteLine("this"))
	require.Equal(t, "got this", <-lines)
	require.Equal(t, "said", p.LogTail(5))
}

// A frozen process does nothing until it is thawed.
func TestProcess_Freeze(t *testing.T) {
	spec := shell(t, "echo ready; while read -r line; do echo got $line; done")
	lines := make(chan string, 10)
	spec.Line = func(line string) { lines <- line }
	p := Run(t, spec)
	require.Equal(t, "ready", <-lines)
	require.NoError(t, p.Freeze())
	require.NoError(t, p.WriteLine("this"))
	select {
	case line := <-lines:
		t.Fatal(line)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, p.Thaw())
	require.Equal(t, "got this", <-lines)
}

// The end of a process is waited for, and its status is an error.
func TestProcess_Stop(t *testing.T) {
	clean := Run(t, shell(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
	require.NoError(t, clean.Stop(10*time.Second))
	failing := Run(t, shell(t, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
	require.ErrorContains(t, failing.Stop(10*time.Second), "exit status 3")
	deaf := Run(t, shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done"))
	require.ErrorContains(t, deaf.Stop(50*time.Millisecond), "did not end")
	<-deaf.Ended()
}

// A process that ends before it is ready shows what it logged.
func TestProcess_AwaitReady(t *testing.T) {
	p, err := Start(shell(t, "echo no disk >&2; exit 1"))
	require.NoError(t, err)
	_, err = p.AwaitReady(t.Context())
	require.ErrorContains(t, err, "no disk")
	slow := shell(t, "exec sleep 60")
	slow.ReadyTimeout = 20 * time.Millisecond
	p, err = Start(slow)
	require.NoError(t, err)
	_, err = p.AwaitReady(t.Context())
	require.ErrorContains(t, err, "not ready")
	p.Kill()
}

func TestAwaitHTTP(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	require.NoError(t, AwaitHTTP(t.Context(), server.Client(), server.URL))
	require.EqualValues(t, 3, asked.Load())
	require.Error(t, AwaitHTTP(t.Context(), server.Client(), strings.Replace(server.URL, "http", "bad", 1)+"\x00"))
}
