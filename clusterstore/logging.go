package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// pebbleLog forwards Pebble's errors. Pebble calls Fatalf when it cannot write its files or has lost their
// consistency; Fatalf ends the process.
type pebbleLog struct {
	log  *slog.Logger
	kill func(error)
}

func (p pebbleLog) Infof(string, ...any) {}

func (p pebbleLog) Errorf(format string, args ...any) {
	p.log.Error("clusterstore: storage", "detail", fmt.Errorf(format, args...).Error()) // Pebble's formats contain %w, which Sprintf does not support
}

func (p pebbleLog) Fatalf(format string, args ...any) {
	why := &fatalError{text: "clusterstore: storage: " + fmt.Errorf(format, args...).Error()}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			why.cause = cause
		}
	}
	p.kill(why)
}

// fatalError is the last message of Pebble. It wraps the operating system's error, from which the caller derives a
// hint.
type fatalError struct {
	text  string
	cause error // may be nil
}

func (f *fatalError) Error() string { return f.text }
func (f *fatalError) Unwrap() error { return f.cause }

// RaftLogger forwards raft's warnings and errors. Raft's normal steps, which it calls so too, are said at level debug.
func RaftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Error, Output: io.Discard})
	l.RegisterSink(raftSink{log})
	return l
}

// raftSteps are the beginnings of raft's messages about its normal steps. The node says itself which one leads and which ones do
// not answer.
var raftSteps = []string{
	// A node cannot be reached, or its connection ends: raft says it for each of its many attempts.
	"failed to appendEntries", "failed to heartbeat", "failed to contact", "failed to make requestVote", "failed to make requestPreVote",
	"failed to pipeline", "failed to start pipeline", "failed to flush response",
	// An election.
	"heartbeat timeout reached", "Election timeout reached", "new leader elected", "peer has newer term", "duplicate requestVote",
	"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader",
	"rejecting vote request since our last", "rejecting pre-vote request since our last",
	// A node that was away, or joins, gets what it lacks.
	"failed to get previous log", "previous log term mis-match", "clearing log suffix", "appendEntries rejected", "not part of stable configuration",
}

type raftSink struct{ log *slog.Logger }

func (s raftSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelWarn
	switch {
	case level < hclog.Warn:
		return
	case slices.ContainsFunc(raftSteps, func(step string) bool { return strings.HasPrefix(msg, step) }), endsConnection(msg, args):
		to = slog.LevelDebug
	case level >= hclog.Error:
		to = slog.LevelError
	}
	s.log.Log(context.Background(), to, "raft: "+msg, args...)
}

// endsConnection reports whether raft says that another node, or this one, has ended a connection in the middle of a command.
func endsConnection(msg string, args []any) bool {
	return msg == "failed to decode incoming command" && slices.ContainsFunc(args, func(arg any) bool {
		err, _ := arg.(error)
		return errors.Is(err, raft.ErrTransportShutdown) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET)
	})
}
