package node

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/flightd/flightd/clusterstore"
)

// By default an embedded member listens on two ports and takes seven seconds to stop.
func TestEtcdListensNowhereAndStopsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []string{"first", "second"} {
		start := time.Now()
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, filterWarnings(slog.New(slog.NewTextHandler(t.Output(), nil)))), clusterstore.Kill)
		if err != nil {
			t.Fatal(err)
		}
		up := time.Since(start)
		if n := len(e.member.Clients) + len(e.member.Peers); n != 0 {
			t.Errorf("%d sockets listen", n)
		}
		if run == "first" {
			if _, err := e.client.Put(context.Background(), "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.client.Get(context.Background(), "k")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s run: %v, %v", run, got, err)
		}
		start = time.Now()
		e.close()
		took := time.Since(start)
		t.Logf("%s run: up after %v, closed in %v", run, up, took)
		if took > 2*time.Second {
			t.Errorf("it took %v to close", took)
		}
	}
}

// These settings of etcd must never change.
func TestEtcdIsSafe(t *testing.T) {
	cfg := etcdConfig(t.TempDir(), etcdQuota, slog.Default())
	if cfg.UnsafeNoFsync {
		t.Error("claims would not outlive the process")
	}
	if cfg.QuotaBackendBytes != etcdQuota || cfg.AutoCompactionRetention != "0" {
		t.Error("quota or auto-compaction was changed")
	}
	if cfg.ElectionMs*3 > 2*2000 {
		t.Error("etcd's minimum TTL is above lease.MinTTL")
	}
}

// A fatal log entry after the start calls kill with its message and cause. Hints depend on the cause.
func TestEtcd_FatalAfterStartKillsWithCause(t *testing.T) {
	for name, usual := range map[string]zapcore.CheckWriteAction{"a commit": zapcore.WriteThenFatal, "a snapshot": zapcore.WriteThenPanic} {
		killed := make(chan error, 1)
		guarded := newGuardedStart(func(why error) {
			killed <- why
			runtime.Goexit() // a kill does not return
		})
		guarded.markStarted()
		go guarded.hook(usual).OnWrite(&zapcore.CheckedEntry{Entry: zapcore.Entry{Message: "failed to commit tx"}}, []zap.Field{zap.Error(syscall.ENOSPC)})
		if why := <-killed; !errors.Is(why, syscall.ENOSPC) || !strings.Contains(why.Error(), "failed to commit tx") {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// Etcd logs an error for each lease that was revoked twice; these entries appear at the debug level only.
func TestEndedLeasesAreNoWarning(t *testing.T) {
	var said syncBuffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := startEtcd(t.Context(), etcdConfig(t.TempDir(), etcdQuota, filterWarnings(log)), clusterstore.Kill)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.Revoke(t.Context(), 4711); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("unknown lease: %v", err)
	}
	e.close()
	lines := 0
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "lease not found") {
			lines++
			if !strings.Contains(line, "level=DEBUG") {
				t.Errorf("not at the debug level: %s", line)
			}
		}
	}
	if lines == 0 {
		t.Errorf("no entry at the debug level:\n%s", said.String())
	}
}
