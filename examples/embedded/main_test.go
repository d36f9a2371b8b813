package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/node"
)

// Three programs are asked to pay one order. It is paid once, and each prints the receipt.
func TestEmbedded_PaysOnce(t *testing.T) {
	dir := t.TempDir()
	var nodes []peer.Node
	for _, name := range []string{"a", "b", "c"} {
		nodes = append(nodes, peer.Node{Name: name, Address: proctest.Address(t), Etcd: proctest.Address(t)})
	}
	require.NoError(t, peer.Found(filepath.Join(dir, "cluster"), nodes, peer.FoundOptions{}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	book := filepath.Join(dir, "payments.txt")
	var lines []*bufio.Reader
	ended := make(chan error, len(nodes))
	for _, n := range nodes {
		cfg := node.Dev(filepath.Join(dir, n.Name), "127.0.0.1:0")
		cfg.Cluster = filepath.Join(dir, "cluster", n.Name)
		r, w := io.Pipe()
		lines = append(lines, bufio.NewReader(r))
		go func() {
			err := run(ctx, cfg, "order-42", book, w)
			_ = w.CloseWithError(err)
			ended <- err
		}()
	}
	executed := 0
	for _, r := range lines {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Regexp(t, `^receipt of order-42 \((executed|replayed|joined)\)\n$`, line)
		if line == "receipt of order-42 (executed)\n" {
			executed++
		}
	}
	require.Equal(t, 1, executed)
	payments, err := os.ReadFile(book)
	require.NoError(t, err)
	require.Equal(t, "order-42\n", string(payments))
	cancel()
	for range nodes {
		require.NoError(t, <-ended)
	}
}
