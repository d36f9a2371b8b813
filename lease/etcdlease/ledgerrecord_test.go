package etcdlease_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// Deployments returns each deployment once, among other keys, and each has records of its own.
func TestLedgerRecordsOfADeployment(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).InProcess(t)
	for _, key := range []string{"flightd/b/s/1", "flightd/a/guard", "flightd/a/k/x", "flightd/a-1/guard", "flight", "flightd0", "other/guard"} {
		_, err := client.Put(t.Context(), key, "x")
		require.NoError(t, err)
	}
	names, err := etcdlease.Deployments(t.Context(), client)
	require.NoError(t, err, "deployments: %v, %v", names, err)
	require.True(t, slices.Equal(names, []string{"a-1", "a", "b"}), "deployments: %v, %v", names, err)
	a := etcdlease.Entry{Index: 42, Term: 3}
	record := &etcdlease.LedgerRecord{Client: client, Deployment: "a", Node: "n1", Durable: func() etcdlease.Entry { return a }}
	require.NoError(t, record.Write(t.Context()))
	_, err = client.Put(t.Context(), "flightd/a/ledger", "7") // as an older build wrote it
	require.NoError(t, err)
	for deployment, want := range map[string][]etcdlease.Entry{"a": {{Index: 7}, a}, "b": nil} {
		entries, err := etcdlease.RecordedEntries(t.Context(), client, deployment, "")
		require.NoError(t, err)
		require.Equal(t, want, entries, deployment)
	}
	for _, damaged := range []string{"", "7 ", "7 x", "1\x80", "-1", "7 3 1"} {
		_, err = client.Put(t.Context(), "flightd/b/ledger/n1", damaged)
		require.NoError(t, err)
		_, err = etcdlease.RecordedEntries(t.Context(), client, "b", "")
		require.ErrorIs(t, err, etcdlease.ErrUnreadable, "%q", damaged)
	}
}
