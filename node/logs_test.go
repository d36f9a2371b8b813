package node

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
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
