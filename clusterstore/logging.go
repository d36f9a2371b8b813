package clusterstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// pebbleLog forwards Pebble's errors. Pebble calls Fatalf when it cannot write its files or has lost their
// consistency; Fatalf ends the process.
type pebbleLog struct {
	log  *slog.Logger
	kill func(error)
}

func (p pebbleLog) Infof(string, ...any) {}

func (p pebbleLog) Errorf(format string, args ...any) {
	p.log.Error("clusterstore: storage", "detail", fmt.Sprintf(format, args...))
}

func (p pebbleLog) Fatalf(format string, args ...any) {
	why := &fatalError{text: "clusterstore: storage: " + fmt.Sprintf(format, args...)}
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

// RaftLogger forwards raft's warnings and errors. That a node cannot be reached is said at level debug: raft says it for each of
// its many attempts.
func RaftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Error, Output: io.Discard})
	l.RegisterSink(raftSink{log})
	return l
}

type raftSink struct{ log *slog.Logger }

func (s raftSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelWarn
	switch {
	case level < hclog.Warn:
		return
	case strings.HasPrefix(msg, "failed to appendEntries"), strings.HasPrefix(msg, "failed to heartbeat"), strings.HasPrefix(msg, "failed to contact"),
		strings.HasPrefix(msg, "failed to make requestVote"), strings.HasPrefix(msg, "failed to make requestPreVote"), strings.HasPrefix(msg, "failed to pipeline"):
		to = slog.LevelDebug
	case level >= hclog.Error:
		to = slog.LevelError
	}
	s.log.Log(context.Background(), to, "raft: "+msg, args...)
}
