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
	names, err := etcdlease.DefaultRoot.Deployments(t.Context(), client)
	require.NoError(t, err, "deployments: %v, %v", names, err)
	require.True(t, slices.Equal(names, []string{"a-1", "a", "b"}), "deployments: %v, %v", names, err)
	a := etcdlease.Entry{Index: 42, Term: 3}
	record := &etcdlease.LedgerRecord{Client: client, Deployment: "a", Node: "n1", Durable: func() etcdlease.Entry { return a }}
	require.NoError(t, record.Write(t.Context()))
	for deployment, want := range map[string][]etcdlease.Entry{"a": {a}, "b": nil} {
		entries, err := etcdlease.DefaultRoot.RecordedEntries(t.Context(), client, deployment, "")
		require.NoError(t, err)
		require.Equal(t, want, entries, deployment)
	}
	team := etcdlease.Root("team/")
	names, err = team.Deployments(t.Context(), client)
	require.NoError(t, err)
	require.Empty(t, names)
	b := etcdlease.Entry{Index: 43, Term: 4}
	other := &etcdlease.LedgerRecord{Client: client, Root: team, Deployment: "a", Node: "n1", Durable: func() etcdlease.Entry { return b }}
	require.NoError(t, other.Write(t.Context()))
	names, err = team.Deployments(t.Context(), client)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names)
	entries, err := team.RecordedEntries(t.Context(), client, "a", "")
	require.NoError(t, err)
	require.Equal(t, []etcdlease.Entry{b}, entries)
	entries, err = etcdlease.DefaultRoot.RecordedEntries(t.Context(), client, "a", "")
	require.NoError(t, err)
	require.Equal(t, []etcdlease.Entry{a}, entries, "another root has no part in it")
	for _, damaged := range []string{"", "7", "7 ", "7 x", "1\x80", "-1", "7 3 1"} {
		_, err = client.Put(t.Context(), "flightd/b/ledger/n1", damaged)
		require.NoError(t, err)
		_, err = etcdlease.DefaultRoot.RecordedEntries(t.Context(), client, "b", "")
		require.ErrorIs(t, err, etcdlease.ErrUnreadable, "%q", damaged)
	}
}
