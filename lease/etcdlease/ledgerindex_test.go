package etcdlease_test

import (
	"slices"
	"testing"

	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// Deployments returns each deployment once, among other keys, and each has its own ledger index.
func TestLedgerIndexPerDeployment(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t).InProcess(t)
	for _, key := range []string{"flightd/b/s/1", "flightd/a/guard", "flightd/a/k/x", "flightd/a-1/guard", "flight", "flightd0", "other/guard"} {
		if _, err := client.Put(t.Context(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := etcdlease.Deployments(t.Context(), client); err != nil || !slices.Equal(names, []string{"a-1", "a", "b"}) {
		t.Errorf("deployments: %v, %v", names, err)
	}
	if err := etcdlease.SetLedgerIndex(t.Context(), client, "a", 42); err != nil {
		t.Fatal(err)
	}
	for deployment, want := range map[string]uint64{"a": 42, "b": 0} {
		if index, err := etcdlease.LedgerIndex(t.Context(), client, deployment); err != nil || index != want {
			t.Errorf("%s: %d, %v", deployment, index, err)
		}
	}
}
