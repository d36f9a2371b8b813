package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flightd/flightd/internal/wire"
)

// About returns the exact compacted revision: 0 before the first compaction, then the revision of the last one.
func TestAboutTellsHowFarEtcdIsCompacted(t *testing.T) {
	in := open(t, t.TempDir(), func(tune *tuning) { tune.compactor.Interval = time.Hour }) // no compaction by the node
	before := in.about(t.Context())
	if before.Etcd == nil || before.Etcd.Compacted != 0 || before.Etcd.Version == "" || before.Etcd.Problem != "" {
		t.Fatalf("before: %+v", before.Etcd)
	}
	for range 5 {
		if _, err := in.etcd.client.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	revision := before.Etcd.Revision + 3
	if _, err := in.etcd.client.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	after := in.about(t.Context())
	if after.Etcd == nil || after.Etcd.Compacted != revision || after.Etcd.Revision < revision || after.Etcd.Quota != etcdQuota {
		t.Errorf("after a compaction at %d: %+v", revision, after.Etcd)
	}
	if d := after.Time.Sub(after.LedgerTime.Time).Abs(); d > 10*time.Second {
		t.Errorf("the ledger's time is %v away from the clock", d)
	}
	aside := filepath.Join(in.cfg.Data, "ledger", "spool", strings.Repeat("0", 32)+"-0.report.damaged")
	if err := os.WriteFile(aside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := in.about(t.Context()); *after.Spool != (wire.Spool{}) || *now.Spool != (wire.Spool{Quarantined: 1}) {
		t.Errorf("the spool is %+v, and with a quarantined report %+v", after.Spool, now.Spool)
	}
	if after.Data != in.cfg.Data {
		t.Errorf("data is %q", after.Data)
	}
}
