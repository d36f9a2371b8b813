package node

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
)

// By default an embedded member listens on two ports and takes seven seconds to stop.
func TestEtcdListensNowhereAndStopsAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, run := range []string{"first", "second"} {
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, filterWarnings(slog.New(slog.NewTextHandler(t.Output(), nil)))), clusterstore.Kill)
		require.NoError(t, err)
		n := len(e.member.Clients) + len(e.member.Peers)
		require.Equal(t, 0, n, "%d sockets listen", n)
		if run == "first" {
			_, err := e.client.Put(context.Background(), "k", "v")
			require.NoError(t, err)
		}
		got, err := e.client.Get(context.Background(), "k")
		require.NoError(t, err, "%s run: %v, %v", run, got, err)
		require.Len(t, got.Kvs, 1, "%s run: %v, %v", run, got, err)
		start := time.Now()
		e.close()
		require.Less(t, time.Since(start), 7*time.Second, "the default")
	}
}

// These settings of etcd must never change.
func TestEtcdIsSafe(t *testing.T) {
	cfg := etcdConfig(t.TempDir(), etcdQuota, slog.Default())
	require.False(t, cfg.UnsafeNoFsync, "claims would not outlive the process")
	require.EqualValues(t, etcdQuota, cfg.QuotaBackendBytes, "quota or auto-compaction was changed")
	require.Equal(t, "0", cfg.AutoCompactionRetention, "quota or auto-compaction was changed")
	require.False(t, cfg.ElectionMs*3 > 2*2000, "etcd's minimum TTL is above lease.MinTTL")
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
		why := <-killed
		require.ErrorIs(t, why, syscall.ENOSPC, "%s: %v", name, why)
		require.Contains(t, why.Error(), "failed to commit tx", "%s: %v", name, why)
	}
}

// Etcd logs an error for each lease that was revoked twice; these entries appear at the debug level only.
func TestEndedLeasesAreNoWarning(t *testing.T) {
	t.Parallel()
	var said syncBuffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := startEtcd(t.Context(), etcdConfig(t.TempDir(), etcdQuota, filterWarnings(log)), clusterstore.Kill)
	require.NoError(t, err)
	_, err = e.client.Revoke(t.Context(), 4711)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound, "unknown lease: %v", err)
	e.close()
	lines := 0
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "lease not found") {
			lines++
			require.Contains(t, line, "level=DEBUG", "not at the debug level: %s", line)
		}
	}
	require.NotEqual(t, 0, lines, "no entry at the debug level:\n%s", said.String())
}

// A node whose address is a host name listens on the address behind it, because etcd binds to addresses only, and tells the others
// the name.
func TestConfigureEtcd_HostName(t *testing.T) {
	c := &cluster{founding: &peer.Founding{Self: peer.Node{Name: "a", Etcd: "localhost:7431"}}, log: slog.New(slog.DiscardHandler)}
	cfg := etcdConfig(t.TempDir(), 0, c.log)
	c.configureEtcd(cfg)
	require.True(t, netip.MustParseAddrPort(cfg.ListenPeerUrls[0].Host).Addr().IsLoopback())
	require.Equal(t, "localhost:7431", cfg.AdvertisePeerUrls[0].Host)
}
