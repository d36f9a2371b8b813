//go:build clients

package conformance

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// clusterSize is the number of nodes behind each proxy: FLIGHTD_CLIENTS_NODES; "": a lone server.
var clusterSize = os.Getenv("FLIGHTD_CLIENTS_NODES")

// startCluster starts a cluster with a process per node, which is killed at the end of the test. The address of the cluster is
// that of another node for each request. With TLS and tokens it is one as flightd cluster found makes it, else that of flightd dev.
func startCluster(t testing.TB, size string) *server {
	t.Helper()
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	h := &server{t: t, data: filepath.Join(t.TempDir(), "data")}
	if secure {
		h.foundNodes(n)
	} else {
		h.foundDevNodes(n)
	}
	h.killAtEnd()
	started := make(chan error, n)
	for _, node := range h.nodes {
		go func() { started <- node.tryStart() }() // ends within waitTimeout; received below
	}
	for range n {
		require.NoError(t, <-started)
	}
	inTurn := 0
	eventually(t, "every node knows the first token", waitTimeout, func() bool {
		answer, err := h.request(http.MethodGet, "/v1/flights", "")
		require.NoError(t, err)
		_ = answer.Body.Close()
		if inTurn++; answer.StatusCode != http.StatusOK {
			inTurn = 0
		}
		return inTurn == n
	})
	return h
}

// foundNodes makes the directories of n nodes with TLS, and the file of the first token.
func (s *server) foundNodes(n int) {
	s.t.Helper()
	s.access = newAccess(s.t, s.data)
	port := proctest.Ports(s.t)
	address := func(offset int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port+offset)) }
	args := []string{"cluster", "found", "--out", s.data, "--first-token-file", s.access.tokenFile}
	for i := range n {
		name := "node-" + strconv.Itoa(i+1)
		args = append(args, "--node", name+"="+address(3*i)) // etcd has the port after it
		s.nodes = append(s.nodes, &server{t: s.t, data: s.data, log: s.data + "-" + name + ".log", args: []string{"serve", "--cluster", filepath.Join(s.data, name),
			"--data", s.data + "-" + name, "--listen", address(3*i + 2), "--tls-cert", s.access.certFile, "--tls-key", s.access.keyFile}})
	}
	found := exec.Command(binaries.flightd, args...)
	found.Env = environment()
	out, err := found.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
}

// foundDevNodes makes the nodes of flightd dev.
func (s *server) foundDevNodes(n int) {
	s.t.Helper()
	args := []string{"dev", "--nodes", strconv.Itoa(n), "--data", s.data, "--listen", proctest.Address(s.t)}
	founder := &server{t: s.t, data: s.data, log: s.data + ".log", args: args}
	founder.start()
	require.NoError(s.t, founder.process.Stop(waitTimeout))
	for i := range n {
		number := strconv.Itoa(i + 1)
		s.nodes = append(s.nodes, &server{t: s.t, data: s.data, log: s.data + "-" + number + ".log", args: append(args[:len(args):len(args)], "--node", number)})
	}
}
