package node

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
)

// A node is alive while its handler answers and its ledger applies proposals.
func TestAlive(t *testing.T) {
	t.Parallel()
	in := open(t, t.TempDir(), nil)
	before, _ := in.store.Applied()
	require.NoError(t, monitor{in.node}.alive(t.Context()))
	after, _ := in.store.Applied()
	require.Greater(t, after, before, "the ledger has applied a proposal")

	api := *in.server.api.Load()
	in.server.setAPI(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	require.ErrorContains(t, monitor{in.node}.alive(t.Context()), "500")
	in.server.setAPI(api)
	require.NoError(t, monitor{in.node}.alive(t.Context()))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, monitor{in.node}.alive(ended), context.Canceled)
	require.NoError(t, in.stopNode())
	require.ErrorIs(t, monitor{in.node}.alive(t.Context()), clusterstore.ErrClosed)
}
