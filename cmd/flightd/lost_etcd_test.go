package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDev_LostEtcdNeedsRaiseLeaseEpoch: the error for a lost etcd names --raise-lease-epoch. With it every receipt is
// kept, and the reason is in the log. A lost ledger has no such remedy.
func TestDev_LostEtcdNeedsRaiseLeaseEpoch(t *testing.T) {
	s := startServer(t)
	pay := []string{"exec", "--key", "pay", "--", "sh", "-c", "echo paid by $$"}
	paid := s.flightd(pay...)
	if paid.code != 0 {
		t.Fatal(paid)
	}
	s.kill()
	if err := os.RemoveAll(filepath.Join(s.data, "etcd")); err != nil {
		t.Fatal(err)
	}
	dev := []string{"dev", "--data", s.data, "--listen", s.address}
	if r := s.flightd(dev...); r.code != exitConfig || !strings.Contains(r.err, "--raise-lease-epoch") {
		t.Fatalf("without etcd: %v", r)
	}
	s.flags = []string{"--raise-lease-epoch", "its disk died"}
	s.start()
	if again := s.flightd(pay...); again.code != 0 || again.out != paid.out {
		t.Errorf("the receipt: %v", again)
	}
	if other := s.flightd("exec", "--key", "pay-2", "--", "echo", "paid"); other.code != 0 {
		t.Errorf("a new key: %v", other)
	}
	s.kill()
	if log := s.log.String(); !strings.Contains(log, "the lease epoch was raised") || !strings.Contains(log, "its disk died") {
		t.Errorf("the reason is not in the log:\n%s", log)
	}

	if err := os.RemoveAll(filepath.Join(s.data, "ledger")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := s.flightd(append(dev, s.flags...)...); r.code != exitConfig || !strings.Contains(r.err, "restore the previous ledger") {
			t.Fatalf("without the ledger: %v", r)
		}
	}
}
