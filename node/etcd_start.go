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

// guardedStart is embed.StartEtcd with fatal log entries and panics turned into errors. Etcd ends the process in this
// way when it cannot create its log, as on a full disk, or cannot read its own files; the entry may come from any
// goroutine.
//
// Files that the failed member has opened stay open until the process ends.
type guardedStart struct {
	started atomic.Bool // the member is ready; from then on a fatal entry calls kill
	failed  chan error  // takes the first fatal entry of the start
	kill    func(error) // ends the process
}

func newGuardedStart(kill func(error)) *guardedStart {
	return &guardedStart{failed: make(chan error, 1), kill: kill}
}

// markStarted ends the start: a later fatal entry of the member ends the process.
func (s *guardedStart) markStarted() { s.started.Store(true) }

// start calls embed.StartEtcd. A fatal entry after it has returned, and before markStarted, is sent to failed.
func (s *guardedStart) start(cfg *embed.Config) (*embed.Etcd, error) {
	type outcome struct {
		member *embed.Etcd
		err    error
	}
	build := cfg.ZapLoggerBuilder
	cfg.ZapLoggerBuilder = func(c *embed.Config) error {
		if err := build(c); err != nil {
			return err
		}
		log := c.GetLogger().WithOptions(zap.WithFatalHook(s.hook(zapcore.WriteThenFatal)), zap.WithPanicHook(s.hook(zapcore.WriteThenPanic)))
		return embed.NewZapLoggerBuilder(log)(c)
	}
	done := make(chan outcome, 1)
	// start waits for this goroutine or for a fatal entry. The entry may end this goroutine through the hook.
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- outcome{err: fmt.Errorf("panic: %v", p)}
			}
		}()
		member, err := embed.StartEtcd(cfg)
		done <- outcome{member, err}
	}()
	select {
	case o := <-done:
		return o.member, o.err
	case err := <-s.failed:
		return nil, err
	}
}

func (s *guardedStart) hook(action zapcore.CheckWriteAction) zapcore.CheckWriteHook {
	return fatalHook{start: s, action: action}
}

// fatalHook runs after a fatal or panic log entry of the member was written.
type fatalHook struct {
	start  *guardedStart
	action zapcore.CheckWriteAction
}

// OnWrite implements zapcore.CheckWriteHook. It ends the goroutine or the process and does not return.
func (h fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(e.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	if h.start.started.Load() {
		h.start.kill(err)
		h.action.OnWrite(e, fields)
		return
	}
	select {
	case h.start.failed <- err:
	default: // an earlier entry is the error
	}
	runtime.Goexit()
}
