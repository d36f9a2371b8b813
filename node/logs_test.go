package node

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// Log lines that every start of a single node or every port scanner causes are not warnings.
func TestLogs_ExpectedLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	httpErrors(log).Print("http2: server: error reading preface from client 127.0.0.1:52110: EOF")
	httpErrors(log).Print("http: TLS handshake error from 127.0.0.1:52110: EOF")
	filterWarnings(log).Warn("8e9e05c52164694d cannot campaign at term 1 " + campaignTooSoon)
	require.Empty(t, out.String())
	httpErrors(log).Print("http: panic serving 127.0.0.1:52110")
	filterWarnings(log).WarnContext(context.Background(), "etcd: slow fdatasync")
	require.Equal(t, 2, bytes.Count(out.Bytes(), []byte("\n")))
}

// A start that raises the feature level logs it, once.
func TestLogs_FeatureLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	in := openConfig(t, cfg)
	require.Eventually(t, func() bool { h := in.store.Header(); return h.FeatureLevel() == flight.MaxLevel }, waitLimit, 10*time.Millisecond)
	require.NoError(t, in.stopNode())
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("the feature level of the ledger rose")), out.String())
}
