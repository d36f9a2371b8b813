//go:build clients

package conformance

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// clusterSize is the number of nodes behind each proxy: FLIGHTD_CLIENTS_NODES; "": a lone server.
var clusterSize = os.Getenv("FLIGHTD_CLIENTS_NODES")

// startCluster starts a cluster with a process per node, which is killed at the end of the test. The address of the cluster is
// that of another node for each request.
func startCluster(t testing.TB, size string) *server {
	t.Helper()
	require.False(t, secure, "flightd dev --nodes has neither TLS nor tokens: set FLIGHTD_CLIENTS_NODES or FLIGHTD_CLIENTS_SECURE")
	h := &server{t: t, data: filepath.Join(t.TempDir(), "data")}
	args := []string{"dev", "--nodes", size, "--data", h.data, "--listen", proctest.Address(t)}
	founder := &server{t: t, data: h.data, log: h.data + ".log", args: args}
	founder.start()
	require.NoError(t, founder.process.Stop(waitTimeout))
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	for i := range n {
		number := strconv.Itoa(i + 1)
		h.nodes = append(h.nodes, &server{t: t, data: h.data, log: h.data + "-" + number + ".log", args: append(args[:len(args):len(args)], "--node", number)})
	}
	h.killAtEnd()
	started := make(chan error, n)
	for _, node := range h.nodes {
		go func() { started <- node.tryStart() }() // ends within waitTimeout; received below
	}
	for range n {
		require.NoError(t, <-started)
	}
	return h
}

// skipInCluster leaves out a scenario with a lone server of its own, which the list without FLIGHTD_CLIENTS_NODES has.
func (t *trial) skipInCluster() {
	t.Helper()
	if clusterSize != "" {
		t.Skip("it needs a lone server of its own")
	}
}
