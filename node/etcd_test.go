package node

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// TestEtcdListensNowhereAndStopsAtOnce: two ports and seven seconds are what an embedded member costs by default.
func TestEtcdListensNowhereAndStopsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, life := range []string{"first", "second"} {
		start := time.Now()
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, quietly(slog.New(slog.NewTextHandler(t.Output(), nil)))))
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
