package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// TestDev_LostEtcdNeedsRaiseLeaseEpoch: the error for a lost etcd names --raise-lease-epoch. With it every receipt is
// kept, and the reason is in the log. A lost ledger has no such remedy.
func TestDev_LostEtcdNeedsRaiseLeaseEpoch(t *testing.T) {
	s := startServer(t)
	pay := []string{"exec", "--key", "pay", "--", "sh", "-c", "echo paid by $$"}
	paid := s.flightd(pay...)
	require.Equal(t, 0, paid.code, paid)
	s.kill()
	err := os.RemoveAll(filepath.Join(s.data, "etcd"))
	require.NoError(t, err)
	dev := []string{"dev", "--data", s.data, "--listen", s.address}
	r := s.flightd(dev...)
	require.Equal(t, cli.ExitConfig, r.code, "without etcd: %v", r)
	require.Contains(t, r.err, "--raise-lease-epoch", "without etcd: %v", r)
	s.flags = []string{"--raise-lease-epoch", "its disk died"}
	s.start()
	again := s.flightd(pay...)
	require.Equal(t, 0, again.code, "the receipt: %v", again)
	require.Equal(t, paid.out, again.out, "the receipt: %v", again)
	other := s.flightd("exec", "--key", "pay-2", "--", "echo", "paid")
	require.Equal(t, 0, other.code, "a new key: %v", other)
	s.kill()
	log := s.log.String()
	require.Contains(t, log, "the lease epoch was raised", "the reason is not in the log:\n%s", log)
	require.Contains(t, log, "its disk died", "the reason is not in the log:\n%s", log)

	err = os.RemoveAll(filepath.Join(s.data, "ledger"))
	require.NoError(t, err)
	for range 2 {
		r := s.flightd(append(dev, s.flags...)...)
		require.Equal(t, cli.ExitConfig, r.code, "without the ledger: %v", r)
		require.Contains(t, r.err, "put the newest copy of this data directory back", "without the ledger: %v", r)
	}
}
