package clusterstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// Raft's normal steps are no warnings; its errors are.
func TestRaftLogger_Levels(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := RaftLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for _, test := range []struct {
		level string
		say   func()
	}{
		{"", func() { log.Info("entering follower state", "follower", "a") }},
		{"DEBUG", func() { log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", "b") }},
		{"DEBUG", func() { log.Warn("rejecting pre-vote request since our last index is greater", "candidate", "c") }},
		{"DEBUG", func() { log.Warn("appendEntries rejected, sending older logs", "peer", "c", "next", 7) }},
		{"DEBUG", func() { log.Error("failed to heartbeat to", "peer", "c", "error", io.EOF) }},
		{"DEBUG", func() { log.Error("failed to decode incoming command", "error", raft.ErrTransportShutdown) }},
		{"DEBUG", func() {
			log.Error("failed to decode incoming command", "error", fmt.Errorf("read: %w", io.ErrUnexpectedEOF))
		}},
		{"ERROR", func() { log.Error("failed to decode incoming command", "error", errors.New("unknown rpc type 77")) }},
		{"ERROR", func() { log.Error("failed to persist vote", "error", io.ErrShortWrite) }},
		{"ERROR", func() { log.Error("failed to get log", "index", 7, "error", raft.ErrLogNotFound) }},
		{"WARN", func() { log.Warn("rejecting vote request since node is not in configuration", "from", "d") }},
	} {
		out.Reset()
		test.say()
		if test.level == "" {
			require.Empty(t, out.String())
			continue
		}
		require.Contains(t, out.String(), "level="+test.level+" msg=\"raft: ")
	}
}

// Pebble's formats wrap errors with %w, which Sprintf does not know.
func TestPebbleLog_WrappedErrors(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var killed error
	full := &fs.PathError{Op: "write", Path: "000007.log", Err: syscall.ENOSPC}
	p := pebbleLog{slog.New(slog.NewTextHandler(&out, nil)), func(err error) { killed = err }}
	p.Errorf("background error: %w", full)
	p.Fatalf("pebble: %w", full)
	require.Contains(t, out.String(), "background error: write 000007.log: no space left on device")
	require.EqualError(t, killed, "clusterstore: storage: pebble: write 000007.log: no space left on device")
	require.ErrorIs(t, killed, syscall.ENOSPC)
}
