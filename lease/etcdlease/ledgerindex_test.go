package etcdlease_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// Deployments returns each deployment once, among other keys, and each has its own ledger index.
func TestLedgerIndexPerDeployment(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).InProcess(t)
	for _, key := range []string{"flightd/b/s/1", "flightd/a/guard", "flightd/a/k/x", "flightd/a-1/guard", "flight", "flightd0", "other/guard"} {
		_, err := client.Put(t.Context(), key, "x")
		require.NoError(t, err)
	}
	names, err := etcdlease.Deployments(t.Context(), client)
	require.NoError(t, err, "deployments: %v, %v", names, err)
	require.True(t, slices.Equal(names, []string{"a-1", "a", "b"}), "deployments: %v, %v", names, err)
	err = etcdlease.SetLedgerIndex(t.Context(), client, "a", 42)
	require.NoError(t, err)
	for deployment, want := range map[string]uint64{"a": 42, "b": 0} {
		index, err := etcdlease.LedgerIndex(t.Context(), client, deployment)
		require.NoError(t, err, "%s: %d, %v", deployment, index, err)
		require.Equal(t, want, index, "%s: %d, %v", deployment, index, err)
	}
}
