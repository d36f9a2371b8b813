package node

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// etcdBirth makes errors of the ways in which a member ends the process while it starts. It tells its logger why, and
// panics or exits, in whatever goroutine finds it out: where it cannot make its log, as on a disk that is full, or where it
// cannot read what it wrote. What it had opened by then stays open as long as the process.
type etcdBirth struct {
	born atomic.Bool
	died chan error
	kill func(error) // ends the process, once the member was born
}

func newEtcdBirth(kill func(error)) *etcdBirth {
	return &etcdBirth{died: make(chan error, 1), kill: kill}
}

// over says that the member lives: where it cannot go on now, the process cannot either.
func (b *etcdBirth) over() { b.born.Store(true) }

// attend is embed.StartEtcd without its deaths. Later ones, until it is over, are told in died.
func (b *etcdBirth) attend(cfg *embed.Config) (*embed.Etcd, error) {
	type outcome struct {
		member *embed.Etcd
		err    error
	}
	build := cfg.ZapLoggerBuilder
	cfg.ZapLoggerBuilder = func(c *embed.Config) error {
		if err := build(c); err != nil {
			return err
		}
		log := c.GetLogger().WithOptions(zap.WithFatalHook(b.instead(zapcore.WriteThenFatal)), zap.WithPanicHook(b.instead(zapcore.WriteThenPanic)))
		return embed.NewZapLoggerBuilder(log)(c)
	}
	done := make(chan outcome, 1)
	go func() { // it does not come back where its logger ends it
		defer func() {
			if p := recover(); p != nil {
				done <- outcome{err: fmt.Errorf("it panicked: %v", p)}
			}
		}()
		member, err := embed.StartEtcd(cfg)
		done <- outcome{member, err}
	}()
	select {
	case o := <-done:
		return o.member, o.err
	case err := <-b.died:
		return nil, err
	}
}

func (b *etcdBirth) instead(usual zapcore.CheckWriteAction) zapcore.CheckWriteHook {
	return lastWord{birth: b, usual: usual}
}

// lastWord is what happens after a member told its logger that it cannot go on.
type lastWord struct {
	birth *etcdBirth
	usual zapcore.CheckWriteAction
}

// OnWrite implements zapcore.CheckWriteHook.
func (w lastWord) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(e.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	if w.birth.born.Load() {
		w.birth.kill(err)
		w.usual.OnWrite(e, fields)
		return
	}
	select {
	case w.birth.died <- err:
	default: // another goroutine was first
	}
	runtime.Goexit()
}
