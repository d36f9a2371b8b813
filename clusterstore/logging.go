package clusterstore

import (
	"context"
	"errors"
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
	p.kill(errors.New("clusterstore: storage: " + fmt.Sprintf(format, args...)))
}

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
