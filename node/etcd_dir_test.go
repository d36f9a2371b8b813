package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A member that ends after the creation of its log and before the first entry has no voters, not even itself. The next
// start must not wait for a leader for ever.
func TestEtcd_InterruptedFirstStartIsRepeated(t *testing.T) {
	t.Parallel()
	for range 3 {
		data := t.TempDir()
		ctx, cut := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, Dev(data, "127.0.0.1:0")) }()
		for log := filepath.Join(data, "etcd", "member", "wal"); !exists(log); { // no pause: the moment is short
			if len(ended) > 0 {
				require.NoError(t, <-ended, "it ended before its log was there")
			}
		}
		cut()
		<-ended // its error does not matter
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		ready := make(chan struct{})
		cfg := Dev(data, "127.0.0.1:0")
		cfg.Ready = func(Ready) { close(ready) }
		go func() { ended <- Run(ctx, cfg) }()
		select {
		case <-ready:
		case <-ctx.Done():
			cancel()
			t.Fatalf("the next start is never ready: %v", <-ended)
		}
		cancel()
		err := <-ended
		require.NoError(t, err, "the next start ended with %v", err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Run returns nil when it is stopped during the start.
func TestStopDuringStartReturnsNil(t *testing.T) {
	t.Parallel()
	for after := range 6 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(after)*20*time.Millisecond, errors.New("stopped by the test"))
		err := Run(ctx, Dev(t.TempDir(), "127.0.0.1:0"))
		require.NoError(t, err, "stopped after %d ms: %v", after*20, err)
		cancel()
	}
}
