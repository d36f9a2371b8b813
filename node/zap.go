package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	etcdlessor "go.etcd.io/etcd/server/v3/lease"
	"go.uber.org/zap/zapcore"
)

// zapToSlog logs the warnings and errors of etcd. Warnings about ended leases, and those of a start that replays its log,
// are logged at the debug level.
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
	switch {
	case e.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	case slices.ContainsFunc(fields, isExpected):
		level = slog.LevelDebug
	}
	z.log.Log(context.Background(), level, "etcd: "+e.Message, attributes(fields)...)
	return nil
}

// isExpected reports whether etcd warns of one of these. A request named a lease that does not exist: sessions end all the time,
// and two callers may end the same one; a caller that still needs it gets an error of its own. Or a proposal has to wait: at a start
// the member proposes its own name again and again while it still applies the entries of its log. Proposals of this process get that
// error as well, and their callers handle it.
func isExpected(f zapcore.Field) bool {
	err, _ := f.Interface.(error)
	return f.Type == zapcore.ErrorType &&
		(errors.Is(err, etcdlessor.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, etcderrors.ErrTooManyRequests))
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
