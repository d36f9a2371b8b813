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

// TestEtcdListensNowhereAndStopsAtOnce: two ports and seven seconds are what an embedded member costs by default.
func TestEtcdListensNowhereAndStopsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, life := range []string{"first", "second"} {
		start := time.Now()
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, quietly(slog.New(slog.NewTextHandler(t.Output(), nil)))), clusterstore.Kill)
		if err != nil {
			t.Fatal(err)
		}
		up := time.Since(start)
		if n := len(e.member.Clients) + len(e.member.Peers); n != 0 {
			t.Errorf("%d sockets listen", n)
		}
		if life == "first" {
			if _, err := e.client.Put(context.Background(), "k", "v"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.client.Get(context.Background(), "k")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s life: %v, %v", life, got, err)
		}
		start = time.Now()
		e.close()
		took := time.Since(start)
		t.Logf("%s life: up after %v, closed in %v", life, up, took)
		if took > 2*time.Second {
			t.Errorf("it took %v to close", took)
		}
	}
}

// TestEtcdIsSafe: what must never be set otherwise.
func TestEtcdIsSafe(t *testing.T) {
	cfg := etcdConfig(t.TempDir(), etcdQuota, slog.Default())
	if cfg.UnsafeNoFsync {
		t.Error("claims would not outlive the process")
	}
	if cfg.QuotaBackendBytes != etcdQuota || cfg.AutoCompactionRetention != "0" {
		t.Error("quota or compaction are not ours")
	}
	if cfg.ElectionMs*3 > 2*2000 {
		t.Error("the floor of a lease's TTL is above the smallest that we give")
	}
}

// TestEtcdThatCannotGoOnSaysWhy: it tells its logger, and then it exits, or panics. What the system refused is what there is
// a hint for.
func TestEtcdThatCannotGoOnSaysWhy(t *testing.T) {
	for name, usual := range map[string]zapcore.CheckWriteAction{"a commit": zapcore.WriteThenFatal, "a snapshot": zapcore.WriteThenPanic} {
		died := make(chan error, 1)
		birth := newEtcdBirth(func(why error) {
			died <- why
			runtime.Goexit() // a kill does not return
		})
		birth.over()
		go birth.instead(usual).OnWrite(&zapcore.CheckedEntry{Entry: zapcore.Entry{Message: "failed to commit tx"}}, []zap.Field{zap.Error(syscall.ENOSPC)})
		if why := <-died; !errors.Is(why, syscall.ENOSPC) || !strings.Contains(why.Error(), "failed to commit tx") {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// TestEndedLeasesAreNoWarning: etcd complains of each session that ended before somebody else could end it, in words that frighten.
func TestEndedLeasesAreNoWarning(t *testing.T) {
	var said syncBuffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := startEtcd(t.Context(), etcdConfig(t.TempDir(), etcdQuota, quietly(log)), clusterstore.Kill)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.Revoke(t.Context(), 4711); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("a lease that never was: %v", err)
	}
	e.close()
	told := 0
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "lease not found") {
			told++
			if !strings.Contains(line, "level=DEBUG") {
				t.Errorf("it says %s", line)
			}
		}
	}
	if told == 0 {
		t.Errorf("who wants to see everything sees nothing:\n%s", said.String())
	}
}
