package clusterstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// pebbleLog passes on what Pebble has to say. Pebble calls Fatalf when its files cannot be written or trusted any
// more: the process ends.
type pebbleLog struct {
	log  *slog.Logger
	kill func(error)
}

func (p pebbleLog) Infof(string, ...any) {}

func (p pebbleLog) Errorf(format string, args ...any) {
	p.log.Error("clusterstore: storage", "detail", fmt.Sprintf(format, args...))
}

func (p pebbleLog) Fatalf(format string, args ...any) {
	why := &fatal{text: "clusterstore: storage: " + fmt.Sprintf(format, args...)}
	for _, a := range args {
		if cause, ok := a.(error); ok {
			why.cause = cause
		}
	}
	p.kill(why)
}

// fatal is what Pebble said last. What the system refused is among its words, and tells which help there is.
type fatal struct {
	text  string
	cause error // nil: there was none
}

func (f *fatal) Error() string { return f.text }
func (f *fatal) Unwrap() error { return f.cause }

// raftLogger passes on raft's warnings and errors.
func raftLogger(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Error, Output: io.Discard})
	l.RegisterSink(raftSink{log})
	return l
}

type raftSink struct{ log *slog.Logger }

func (s raftSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	switch {
	case level >= hclog.Error:
		s.log.Log(context.Background(), slog.LevelError, "raft: "+msg, args...)
	case level == hclog.Warn:
		s.log.Log(context.Background(), slog.LevelWarn, "raft: "+msg, args...)
	}
}
