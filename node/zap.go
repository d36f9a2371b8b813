package node

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// zapToSlog passes on what etcd has to say, from warnings on.
type zapToSlog struct{ log *slog.Logger }

var _ zapcore.Core = zapToSlog{}

func (z zapToSlog) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (z zapToSlog) With(fields []zapcore.Field) zapcore.Core {
	return zapToSlog{log: z.log.With(attributes(fields)...)}
}

func (z zapToSlog) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) {
		return ce.AddCore(e, z)
	}
	return ce
}

func (z zapToSlog) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	z.log.Log(context.Background(), level, "etcd: "+e.Message, attributes(fields)...)
	return nil
}

func (z zapToSlog) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	all := make([]any, 0, 2*len(enc.Fields))
	for _, f := range fields {
		if v, ok := enc.Fields[f.Key]; ok {
			all = append(all, f.Key, v)
		}
	}
	return all
}
