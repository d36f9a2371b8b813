package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAStartThatWasCutOffCanBeRepeated: a member that ends between the birth of its log and the first entry in it has
// no voters, itself included, and would wait for a leader for ever.
func TestAStartThatWasCutOffCanBeRepeated(t *testing.T) {
	for range 8 {
		data := t.TempDir()
		ctx, cut := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Run(ctx, Dev(data, "127.0.0.1:0")) }()
		for log := filepath.Join(data, "etcd", "member", "wal"); !exists(log); { // no pause: the moment is short
			if len(ended) > 0 {
				t.Fatalf("it ended with %v", <-ended)
			}
		}
		cut()
		<-ended // with whatever it says
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
		if err := <-ended; err != nil {
			t.Errorf("the next life ended with %v", err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestAStopWhileStartingIsAStop: whoever is told to stop before it was ready did what it was told.
func TestAStopWhileStartingIsAStop(t *testing.T) {
	for after := range 12 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(after)*10*time.Millisecond, errors.New("told to stop"))
		if err := Run(ctx, Dev(t.TempDir(), "127.0.0.1:0")); err != nil {
			t.Errorf("stopped after %d ms: %v", after*10, err)
		}
		cancel()
	}
}
