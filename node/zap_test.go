package node

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.uber.org/zap"
)

// A start logs no warning while etcd replays its log, and its proposal of its own name waits for that.
func TestEtcdLog_ReplayIsNoWarning(t *testing.T) {
	var text bytes.Buffer
	log := zap.New(zapToSlog{log: slog.New(slog.NewTextHandler(&text, nil))})
	log.Warn("failed to publish local member to cluster through raft", zap.Error(etcderrors.ErrTooManyRequests))
	require.Empty(t, text.String())
	log.Warn("failed to publish local member to cluster through raft", zap.Error(etcderrors.ErrStopped))
	require.Contains(t, text.String(), "failed to publish")
}
